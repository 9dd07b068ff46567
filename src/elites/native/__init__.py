"""Small pure JAX functions as machine code: scalars side by side in the lanes of vector registers.

`compile_function` traces a function (`trace`), makes a program of scalar operations from it (`program`,
`functions`), makes vector code from the program (`emit`), and keeps the code on disk (`compiled`). `cuda`
makes kernels from programs. The package knows nothing about robots.
"""

from elites.native.compiled import CompiledFunction, compile_function
from elites.native.program import UnknownPrimitiveError

__all__ = ["CompiledFunction", "UnknownPrimitiveError", "compile_function"]
