"""One fused CUDA kernel where the reference launches two, compiled by `load_inline`.

twin: A34
problem: silu
needs: ninja
expect: gain
"""
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
__global__ void silu(const float* x, float* y, long count) {
    long place = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) y[place] = x[place] / (1.0f + expf(-x[place]));
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    long count = x.numel();
    silu<<<(count + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), count);
    return y;
}
"""
ours = load_inline(
    "inline_cuda", functions=["run"], cuda_sources=SOURCE,
    cpp_sources="torch::Tensor run(torch::Tensor x);",
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ours.run(x.contiguous())
