"""How kernels become machine code, are kept on disk, and are called without numba.

`kernel` is what a decorated function becomes: it looks at its arguments' types (`argument_types`) and calls the machine
code for them. That comes from a file (`object_files`), brought into memory by `loader` and `elf_object`. Only where
there is no file yet, other processes (`compile_service`, `compile_worker`) import numba and make one
(`numba_compiler`). Loading numba and LLVM takes 90 MB and most of a second, and compiling in the process itself one
core; a process that finds its kernels on disk needs neither. numba compiles and runs kernels in the process itself
(`in_process`) on systems whose object files the loader does not know, where the user asks for it, and after any failure
(`kernel_road`). What all this uses of numba's private parts is listed in `numba_parts`.
"""
