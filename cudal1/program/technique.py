"""The closed list of techniques by which a candidate may be faster than its reference."""

from __future__ import annotations

from enum import StrEnum


class Technique(StrEnum):
    """A technique that a candidate's source has and its reference's has not."""

    TRITON = "triton"
    CUDA = "cuda"
    CPP = "cpp"
    OTHER_KERNEL = "other_kernel"
    TORCH_COMPILE = "torch_compile"
    TORCH_SCRIPT = "torch_script"
    CUDA_GRAPH = "cuda_graph"
    LIBRARY_CALL = "library_call"
    FUSION = "fusion"
    FUSED_OPERATOR = "fused_operator"
    ALGEBRA = "algebra"
    FOLDED_WEIGHTS = "folded_weights"
    PRECOMPUTED = "precomputed"
    IN_PLACE = "in_place"
    BUFFER_REUSE = "buffer_reuse"
    LAYOUT = "layout"
    HALF_PRECISION = "half_precision"
    TF32 = "tf32"
    FAST_MATH = "fast_math"
    LAUNCH_SHAPE = "launch_shape"
    GRID_STRIDE = "grid_stride"
    SHARED_MEMORY = "shared_memory"
    VECTOR_LOADS = "vector_loads"
    WARP_SHUFFLE = "warp_shuffle"
    TENSOR_CORES = "tensor_cores"
    ASYNC_COPY = "async_copy"
    UNROLLING = "unrolling"
    CACHE_HINTS = "cache_hints"
    STREAMS = "streams"
    THREADS = "threads"
    SIMD = "simd"
    LIBRARY_TUNING = "library_tuning"
    NO_AUTOGRAD = "no_autograd"


MEANINGS: dict[Technique, str] = {
    Technique.TRITON: "It launches a Triton kernel of its own.",
    Technique.CUDA: "It compiles CUDA C++ of its own and calls it.",
    Technique.CPP: "It compiles C++ of its own, without a kernel, and calls it.",
    Technique.OTHER_KERNEL: "It has a kernel in Numba, CuTe, TileLang or Warp.",
    Technique.TORCH_COMPILE: "torch.compile makes its kernels.",
    Technique.TORCH_SCRIPT: "TorchScript compiles, traces or freezes a part of it.",
    Technique.CUDA_GRAPH: "It captures launches in a CUDA graph and replays them.",
    Technique.LIBRARY_CALL: "Its C++ calls cuBLAS, cuDNN, CUTLASS, CUB or oneDNN itself.",
    Technique.FUSION: "A kernel of its own does the work of several of the reference's operators.",
    Technique.FUSED_OPERATOR: "One operator of PyTorch does what several of the reference's do.",
    Technique.ALGEBRA: "An identity avoids or replaces a product, a convolution or a reduction.",
    Technique.FOLDED_WEIGHTS: "Scales or further weights are multiplied into the weights.",
    Technique.PRECOMPUTED: "A tensor that no input changes is computed once and kept.",
    Technique.IN_PLACE: "An operator writes over its operand.",
    Technique.BUFFER_REUSE: "Results go into a buffer that is kept or given with out=.",
    Technique.LAYOUT: "Tensors are stored channels last, or weights transposed.",
    Technique.HALF_PRECISION: "It converts to float16, bfloat16 or float8 for its work.",
    Technique.TF32: "It allows TF32 in products of float32.",
    Technique.FAST_MATH: "Its kernels use approximate functions, by name or by a compiler's flag.",
    Technique.LAUNCH_SHAPE: "Its launch is tuned, has stated warps or bounds, or fits the device.",
    Technique.GRID_STRIDE: "A thread or program of its kernel goes over several pieces of work.",
    Technique.SHARED_MEMORY: "Its CUDA kernel declares shared memory.",
    Technique.VECTOR_LOADS: "Its CUDA kernel reads or writes by pointers to vectors, as float4.",
    Technique.WARP_SHUFFLE: "Threads of a warp exchange values without memory.",
    Technique.TENSOR_CORES: "Its kernel multiplies tiles by wmma, mma or tl.dot.",
    Technique.ASYNC_COPY: "Its kernel copies to shared memory while it computes.",
    Technique.UNROLLING: "A loop of its kernel is unrolled by a directive.",
    Technique.CACHE_HINTS: "A load or store of its kernel says how caches should treat it.",
    Technique.STREAMS: "It spreads work over several CUDA streams.",
    Technique.THREADS: "Its C++ spreads work over threads of the host.",
    Technique.SIMD: "Its C++ uses vector instructions of the host by name.",
    Technique.LIBRARY_TUNING: "It lets cuDNN try its algorithms (cudnn.benchmark).",
    Technique.NO_AUTOGRAD: "Its forward pass runs with autograd switched off.",
}
"""Each technique's meaning, in one line."""
