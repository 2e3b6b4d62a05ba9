"""Compiles one kernel to an object file, in a process that does nothing else.

numba is made to stop at LLVM's object file instead of linking it into its own process: what a kernel is made of is
optimised once, not once for itself and again in everything that it is linked into (measured: 14 instead of 23 seconds
for what a first fit needs). A call from one kernel to another stays a call to a symbol, the other kernel's label, so
that either may be compiled first, in whichever process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from llvmlite.binding import parse_bitcode
from numba.core import cgutils, codegen, compiler, imputils, registry, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import NopythonTypeInference
from numba.core.types.misc import VarArg, unliteral
from numba.core.typing.templates import AbstractTemplate, signature

from dmlgbm.gbdt.machine_code.kernel import Kernel
from dmlgbm.gbdt.machine_code.named_object import object_named
from dmlgbm.gbdt.machine_code.numba_functions import SETTINGS, NumbaFunctions, numba_type, return_type, text_of_type
from dmlgbm.gbdt.machine_code.object_files import KernelTypes, MachineCode


class _ObjectLibrary(codegen.CPUCodeLibrary):
    """Functions on the way to an object file. Parts of a kernel are optimised together with the whole of it."""

    is_whole = False
    _linked = b""

    def _optimize_final_module(self) -> None:
        if self.is_whole:
            self._linked = self._final_module.as_bitcode()
            super()._optimize_final_module()

    def _finalize_specific(self) -> None:
        """Nothing is linked into this process."""

    def get_pointer_to_function(self, name: str) -> int:
        """Nothing is called in this process: any address but null will do."""
        return 1

    def object_file(self) -> bytes:
        """LLVM's answer."""
        data: bytes = self._codegen._tm.emit_object(self._final_module)
        return data

    def object_file_of(self, generator: codegen.JITCPUCodegen) -> bytes:
        """LLVM's answer for the processors of another generator. What comes before LLVM is five sixths of the time."""
        self._codegen, self._final_module = generator, parse_bitcode(self._linked)
        super()._optimize_final_module()
        return self.object_file()


class _LevelCodegen(codegen.JITCPUCodegen):
    """Generates code for a level of processors instead of the one at hand."""

    def __init__(self, level: str) -> None:
        self._level = level
        super().__init__(level)

    def _get_host_cpu_name(self) -> str:
        return self._level

    def _get_host_cpu_features(self) -> str:
        return ""  # those of the level


@cache
def _only_make_objects() -> None:
    """From here on numba in this process compiles to object files and runs nothing."""
    codegen.JITCPUCodegen._library_class = _ObjectLibrary
    codegen.JITCPUCodegen._add_module = lambda self, module: None
    codegen.JITCPUCodegen.set_env = lambda self, name, environment: None
    registry.cpu_target.typing_context.refresh()
    registry.cpu_target.target_context.refresh()


@cache
def _generator(level: str) -> _LevelCodegen:
    return _LevelCodegen(level)


class _CalledKernel:
    """What stands for a kernel in the functions that call it. numba wants an object it can hold a weak reference to."""

    def __init__(self, kernel: Kernel, on_call: Callable[[KernelTypes], None]) -> None:
        self._kernel = kernel
        self._on_call = on_call
        self._declare()

    def _declare(self) -> None:
        returned = return_type(self._kernel)

        class Template(AbstractTemplate):
            key = self

            def generic(self, arguments: Any, keywords: Any) -> Any:
                return signature(returned, *(unliteral(argument) for argument in arguments))

        functions = imputils.Registry()
        functions.lower(self, VarArg(types.Any))(self._generate)
        registry.cpu_target.typing_context.insert_global(self, types.Function(Template))
        registry.cpu_target.target_context.install_registry(functions)

    def announce(self, called: Any) -> KernelTypes:
        """Say that a kernel is called with certain types."""
        wanted = KernelTypes(self._kernel.name, tuple(text_of_type(kind) for kind in called.args))
        self._on_call(wanted)
        return wanted

    def _generate(self, context: Any, builder: Any, called: Any, arguments: Any) -> Any:
        wanted = self.announce(called)
        convention = context.call_conv
        kind = convention.get_function_type(called.return_type, called.args)
        function = cgutils.get_or_insert_function(builder.module, kind, wanted.label)
        status, result = convention.call_function(builder, function, called.return_type, called.args, arguments)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return imputils.impl_ret_new_ref(context, builder, called.return_type, result)


@register_pass(mutates_CFG=False, analysis_only=True)
class _AnnounceCalls(AnalysisPass):
    """Tells of called kernels once types are known, long before the caller is done."""

    _name = "dmlgbm_announce_calls"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        for expression, called in state.calltypes.items():
            if getattr(expression, "op", None) == "call":
                function = state.typemap[expression.func.name]
                if isinstance(getattr(function, "typing_key", None), _CalledKernel):
                    function.typing_key.announce(called)
        return False


class _KernelPipeline(compiler.CompilerBase):
    """numba's passes with ours among them."""

    def define_pipelines(self) -> list[Any]:
        passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_AnnounceCalls, NopythonTypeInference)
        passes.finalize()
        return [passes]


class ObjectCompiler:
    """Compiles kernels one after the other; `on_call` hears of the kernels they call while they are compiled."""

    def __init__(self, on_call: Callable[[KernelTypes], None]) -> None:
        _only_make_objects()
        self._on_call = on_call
        self._called: dict[str, _CalledKernel] = {}
        self._calls: dict[str, KernelTypes] = {}
        self._library: Any = None
        self._functions = NumbaFunctions(self._called_kernel)

    def compile(self, wanted: KernelTypes) -> MachineCode:
        """Machine code for a kernel and types."""
        kernel = object_named(wanted.kernel)
        self._calls = {}
        target = registry.cpu_target
        flags = compiler.Flags()
        target.options.parse_as_flags(flags, dict(SETTINGS))
        flags.no_compile = True
        arguments = tuple(numba_type(text) for text in wanted.types)
        with global_compiler_lock:
            result = compiler.compile_extra(
                target.typing_context,
                target.target_context,
                self._functions.function_of(kernel),
                arguments,
                return_type(kernel),
                flags,
                {},
                pipeline_class=_KernelPipeline,
            )
            if result.environment.consts:
                raise TypeError(f"{kernel} needs the Python objects {result.environment.consts}.")
            self._library = result.library
            self._library.is_whole = True
            self._library.finalize()
            description = result.fndesc
            return MachineCode(
                self._library.object_file(),
                description.llvm_cpython_wrapper_name,
                description.llvm_func_name,
                tuple(self._calls.values()),
            )

    def compiled_for(self, levels: Sequence[str]) -> dict[str, bytes]:
        """Object files of the kernel that was compiled last, for levels of processors."""
        return {level: self._library.object_file_of(_generator(level)) for level in levels}

    def _called_kernel(self, kernel: Kernel) -> _CalledKernel:
        if kernel.name not in self._called:
            self._called[kernel.name] = _CalledKernel(kernel, self._note_call)
        return self._called[kernel.name]

    def _note_call(self, wanted: KernelTypes) -> None:
        if wanted.label not in self._calls:
            self._calls[wanted.label] = wanted
            self._on_call(wanted)
