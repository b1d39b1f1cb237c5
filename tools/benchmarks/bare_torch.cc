// The smallest program that links what `lanewise` links: what its start is measured against.
#include <ATen/ATen.h>

#include <cstdio>

int main() {
  const at::Tensor ones = at::ones({2, 2});
  return std::printf("%lld\n", static_cast<long long>(ones.numel())) > 0 ? 0 : 1;
}
