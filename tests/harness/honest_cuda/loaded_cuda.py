"""A block for each row, in CUDA in a file that the source writes and has compiled by `load`.

twin: A34
problem: softmax
needs: ninja
expect: gain
"""
from pathlib import Path

import torch.nn as nn
from torch.utils.cpp_extension import load

SOURCE = """
#include <torch/extension.h>

constexpr int THREADS = 256;

template <bool IS_SUM>
__device__ float over_block(float mine) {
    __shared__ float found[THREADS];
    __syncthreads();
    found[threadIdx.x] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float other = found[threadIdx.x + half];
            found[threadIdx.x] = IS_SUM ? found[threadIdx.x] + other : fmaxf(found[threadIdx.x], other);
        }
        __syncthreads();
    }
    return found[0];
}

__global__ void softmax(const float* x, float* y, int size) {
    const float* from = x + (long)blockIdx.x * size;
    float* to = y + (long)blockIdx.x * size;
    float most = from[0], sum = 0.0f;
    for (int i = threadIdx.x; i < size; i += THREADS) most = fmaxf(most, from[i]);
    most = over_block<false>(most);
    for (int i = threadIdx.x; i < size; i += THREADS) sum += expf(from[i] - most);
    sum = over_block<true>(sum);
    for (int i = threadIdx.x; i < size; i += THREADS) to[i] = expf(from[i] - most) / sum;
}

torch::Tensor run(torch::Tensor x) {
    x = x.contiguous();
    auto y = torch::empty_like(x);
    softmax<<<x.size(0), THREADS>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
file = Path("softmax.cu")
file.write_text(SOURCE)
ours = load("loaded_cuda", [str(file)])


class ModelNew(nn.Module):
    def forward(self, x):
        return ours.run(x)
