#ifndef HJIT_H
#define HJIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { HJIT_MAX_DIMS = 8 };

/* An array as NumPy has it: element [i, j] is at (char *)data + i * strides[0] + j * strides[1]. */
typedef struct hjit_array {
  void *data;
  int32_t ndim;
  int64_t shape[HJIT_MAX_DIMS];
  int64_t strides[HJIT_MAX_DIMS]; /* in bytes */
} hjit_array;

/* How a call runs; NULL in its place: on the calling thread, with malloc and free. All fields may be 0. */
typedef struct hjit_context {
  int threads;                                              /* of the call; 0 and 1: the calling one alone */
  void *(*allocate)(void *user, size_t bytes);              /* scratch memory, of any alignment; NULL: malloc */
  void (*release)(void *user, void *block, size_t bytes);   /* gives it back */
  void (*parallel)(void *user, void (*run)(void *work, int64_t task), void *work, int64_t tasks);
                                                            /* runs all tasks; NULL: threads of the library's own */
  void *user;                                               /* what these three are given */
} hjit_context;

/* What a function returns. Unless it is HJIT_OK, results have undefined contents, and changed arguments are as they
   were. */
enum hjit_status {
  HJIT_OK = 0,
  HJIT_NULL_POINTER = 1,  /* an array, or its data, is missing */
  HJIT_WRONG_RANK = 2,    /* an array has another number of dimensions */
  HJIT_WRONG_SHAPE = 3,   /* the function was not compiled for such sizes; its header says for which */
  HJIT_WRONG_STRIDES = 4, /* nor for such strides; results have those that the function ..._shape gives */
  HJIT_WRONG_VALUE = 5,   /* nor for such a number */
  HJIT_OUT_OF_RANGE = 6,  /* a number does not fit its type */
  HJIT_TOO_LARGE = 7,     /* an array has more than 2^28 elements, or so has what is computed on the way */
  HJIT_OVERLAP = 8,       /* a result, or an array that is changed, shares memory with another array */
  HJIT_OUT_OF_BOUNDS = 9, /* an index that is computed of values is out of bounds */
  HJIT_REFUSED = 10,      /* NumPy raises an exception for such values */
  HJIT_NO_MEMORY = 11,
  HJIT_WRONG_CPU = 12     /* the processor lacks instructions that the library was compiled for */
};

static inline const char *hjit_message(int status) {
  static const char *const messages[] = {
      "done", "an array or its data is NULL", "an array has the wrong number of dimensions",
      "the function was not compiled for such shapes", "the function was not compiled for such strides",
      "the function was compiled for another number", "a number does not fit its type", "an array is too large",
      "a result shares memory with another array", "an index is out of bounds", "NumPy refuses such values",
      "there is no memory", "the processor lacks instructions that are needed"};
  return status >= 0 && status <= HJIT_WRONG_CPU ? messages[status] : "no status of hjit";
}

/* An array in C order. */
static inline hjit_array hjit_dense(void *data, size_t itemsize, int32_t ndim, const int64_t *shape) {
  hjit_array a;
  int64_t step = (int64_t)itemsize;
  a.data = data;
  a.ndim = ndim;
  for (int32_t k = HJIT_MAX_DIMS - 1; k >= 0; k--) {
    a.shape[k] = k < ndim ? shape[k] : 1;
    a.strides[k] = step;
    step *= a.shape[k];
  }
  return a;
}

static inline int64_t hjit_elements(const hjit_array *a) {
  int64_t n = 1;
  for (int32_t k = 0; k < a->ndim; k++) n *= a->shape[k];
  return n;
}

#ifdef __cplusplus
}
#endif
#endif
