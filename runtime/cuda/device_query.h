/* What liblanewise_cuda.so exports: C, so that neither side needs the other's headers. */
#ifndef LANEWISE_RUNTIME_CUDA_DEVICE_QUERY_H_
#define LANEWISE_RUNTIME_CUDA_DEVICE_QUERY_H_

#ifdef __cplusplus
extern "C" {
#endif

struct lanewise_gpu {
  char name[256];
  unsigned long long bytes; /* of its memory */
};

/* Fills in up to `room` GPUs and returns how many there are. On failure returns -1 and puts why into `error`. */
typedef int lanewise_cuda_devices_function(struct lanewise_gpu* gpus, int room, char* error, int error_room);
lanewise_cuda_devices_function lanewise_cuda_devices;

#ifdef __cplusplus
}
#endif

#endif
