"""One fused kernel that PyTorch compiles with NVRTC, no compiler's process and no host code.

twin: A34
problem: silu
expect: gain
"""
import torch
import torch.nn as nn

SOURCE = """
extern "C" __global__ void silu(const float* x, float* y, int count) {
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) y[place] = x[place] / (1.0f + expf(-x[place]));
}
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.silu = torch.cuda._compile_kernel(SOURCE, "silu")

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        blocks = -(-x.numel() // 256)
        self.silu(grid=(blocks, 1, 1), block=(256, 1, 1), args=[x, y, x.numel()])
        return y
