// A liblanewise_cuda.so of another build: whoever calls anything of it ends.
#include <cstdlib>

extern "C" {
extern const char lanewise_cuda_build[];
const char lanewise_cuda_build[] = "lanewise 0.0.1, LibTorch 2.0.0, interface 0123456789ab";
void lanewise_make_accelerator() { std::abort(); }
void lanewise_cuda_devices() { std::abort(); }
}
