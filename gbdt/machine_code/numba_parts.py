"""What DMLGBM uses of numba beyond its documented interface: what a new version of numba may take away.

`pyproject.toml` states the range of versions that have all of it, and `.ci/numba_range` tests both ends. Another
version may lack a part. Without one of `TO_MAKE_OBJECT_FILES`, or of what object files need at run time, numba compiles
and runs the kernels itself; without one of `TO_KEEP_RESULTS`, every process does so again. Nothing replaces
`TO_WRITE_KERNELS`.
"""

from __future__ import annotations

# Object files need three extension modules of numba at run time: two whose `c_helpers` hold the addresses of what
# compiled code calls, by the prefix of its name, and one for the environment whose address must stand in each
# variable with a certain prefix before the code runs. (`symbols`, `loader`)
HELPER_MODULES = {"NRT_": "core.runtime._nrt_python", "numba_": "_helperlib"}
ENVIRONMENT_MODULE = "_dynfunc"
ENVIRONMENT_PREFIX = "_ZN08NumbaEnv"

# The first and the last version between which object files that one has made run with another: what the modules above
# offer is the same in all of them, and so is how kernels call each other. (`code_version`)
SAME_RUNTIME = ((0, 60), (0, 68))

# Both ways to compile: types by name, and the code generator's words for our intrinsics. Also the option
# `no_cfunc_wrapper` of `numba.jit`. (`numba_functions`, `intrinsics`, `collectives/kernels/intrinsics`)
TO_WRITE_KERNELS = (
    "numba.core.cgutils",
    "numba.core.types",
    "numba.core.types.abstract.Type",
    "numba.core.types.containers.BaseTuple.from_types",
    "numba.core.types.containers.UniTuple",
    "numba.core.types.misc.MemInfoPointer",
    "numba.np.numpy_support.as_dtype",
    "numba.np.numpy_support.from_dtype",
)

# numba stops at LLVM's object file and links nothing; calls between kernels stay open. (`numba_compiler`)
TO_MAKE_OBJECT_FILES = (
    "numba.core.cgutils",
    "numba.core.codegen.CPUCodeLibrary._optimize_final_module",
    "numba.core.codegen.JITCPUCodegen._add_module",
    "numba.core.codegen.JITCPUCodegen._get_host_cpu_features",
    "numba.core.codegen.JITCPUCodegen._get_host_cpu_name",
    "numba.core.codegen.JITCPUCodegen._library_class",
    "numba.core.codegen.JITCPUCodegen.set_env",
    "numba.core.codegen.JITCodeLibrary._finalize_specific",
    "numba.core.codegen.JITCodeLibrary.get_pointer_to_function",
    "numba.core.compiler.CompilerBase.define_pipelines",
    "numba.core.compiler.DefaultPassBuilder.define_nopython_pipeline",
    "numba.core.compiler.Flags.no_compile",
    "numba.core.compiler.compile_extra",
    "numba.core.compiler_lock.global_compiler_lock",
    "numba.core.compiler_machinery.AnalysisPass",
    "numba.core.compiler_machinery.register_pass",
    "numba.core.imputils.Registry.lower",
    "numba.core.imputils.impl_ret_new_ref",
    "numba.core.registry.cpu_target.options.parse_as_flags",
    "numba.core.registry.cpu_target.target_context.install_registry",
    "numba.core.registry.cpu_target.typing_context.insert_global",
    "numba.core.typed_passes.NopythonTypeInference",
    "numba.core.types",
    "numba.core.types.misc.VarArg",
    "numba.core.types.misc.unliteral",
    "numba.core.typing.templates.AbstractTemplate",
    "numba.core.typing.templates.signature",
)

# What numba compiled in place is kept in our folders instead of its own. (`kept_results`)
TO_KEEP_RESULTS = (
    "numba.core.caching.NullCache",
    "numba.core.compiler.CompileResult._rebuild",
    "numba.core.compiler.CompileResult._reduce",
    "numba.core.serialize.dumps",
)
