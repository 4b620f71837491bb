"""One fused kernel that CuPy compiles at its first launch, given pointers.

twin: A34
problem: silu
needs: cupy
expect: gain
"""
import cupy
import torch
import torch.nn as nn

SOURCE = r"""
extern "C" __global__ void silu(const float* x, float* y, long long count) {
    long long place = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) y[place] = x[place] / (1.0f + expf(-x[place]));
}
"""
silu = cupy.RawKernel(SOURCE, "silu")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        silu((-(-x.numel() // 256),), (256,), (x.data_ptr(), y.data_ptr(), x.numel()))
        return y
