"""Small pure JAX functions as machine code: scalars side by side in the lanes of vector registers.

`compile_function` traces a function (`trace`), makes a program of scalar operations (`program`, `functions`)
and of that vector code (`emit`), which is kept on disk (`compiled`). `cuda` makes kernels of programs. It
knows nothing of robots.
"""

from elites.native.compiled import Compiled, compile_function
from elites.native.program import UnknownPrimitiveError

__all__ = ["Compiled", "UnknownPrimitiveError", "compile_function"]
