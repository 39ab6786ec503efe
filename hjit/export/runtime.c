/* hjit's runtime: scratch memory, checks, threads. Compile with -DHJIT_NO_THREADS for one without threads. */

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifndef HJIT_NO_THREADS
#include <pthread.h>
#include <stdatomic.h>
#endif

enum { HJ_ALIGN = 64, HJ_SLACK = 64, HJ_PAGE = 4096, HJ_STAGGER = 5 * 64, HJ_LARGE = 1 << 16, HJ_MOST_THREADS = 256 };

#define HJ_UNUSED __attribute__((unused))

/* -- sizes */

static HJ_UNUSED int64_t hj_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - (a % b != 0 && (a % b < 0) != (b < 0));
}

static HJ_UNUSED int64_t hj_mod(int64_t a, int64_t b) { return a - hj_div(a, b) * b; }

static HJ_UNUSED int64_t hj_min(int64_t a, int64_t b) { return a < b ? a : b; }

static HJ_UNUSED int64_t hj_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* -- numbers */

static HJ_UNUSED int hj_same(double a, double b) {
  return (a == b && !signbit(a) == !signbit(b)) || (a != a && b != b);
}

static HJ_UNUSED int64_t hj_float_bits(float x) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (int64_t)(uint32_t)bits;
}

static HJ_UNUSED int64_t hj_double_bits(double x) {
  int64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* -- arrays */

static HJ_UNUSED int hj_checked(const hjit_array *a, int32_t ndim, const int64_t *shape) {
  if (!a) return HJIT_NULL_POINTER;
  if (a->ndim != ndim) return HJIT_WRONG_RANK;
  for (int32_t k = 0; k < ndim; k++)
    if (a->shape[k] < 0 || a->shape[k] > INT32_MAX || (shape[k] >= 0 && a->shape[k] != shape[k]))
      return HJIT_WRONG_SHAPE;
  return HJIT_OK;
}

static HJ_UNUSED int hj_has_data(const hjit_array *a) { return a->data || !hjit_elements(a); }

/* `steps`: in elements, of axes where they are part of the code; INT64_MIN elsewhere. */
static HJ_UNUSED int hj_strided(const hjit_array *a, int64_t itemsize, const int64_t *steps) {
  for (int32_t k = 0; k < a->ndim; k++) {
    if (a->shape[k] <= 1) continue;
    if (a->strides[k] % itemsize || (steps[k] != INT64_MIN && a->strides[k] != steps[k] * itemsize))
      return HJIT_WRONG_STRIDES;
  }
  return HJIT_OK;
}

static HJ_UNUSED int hj_alike(const hjit_array *a, const hjit_array *b) {
  if (!a) return HJIT_NULL_POINTER;
  if (a->ndim != b->ndim) return HJIT_WRONG_RANK;
  for (int32_t k = 0; k < a->ndim; k++)
    if (a->shape[k] != b->shape[k]) return HJIT_WRONG_SHAPE;
  for (int32_t k = 0; k < a->ndim; k++)
    if (a->shape[k] > 1 && a->strides[k] != b->strides[k]) return HJIT_WRONG_STRIDES;
  return hjit_elements(a) > 0 && !a->data ? HJIT_NULL_POINTER : HJIT_OK;
}

/* A result: `order` has for each of its axes that of what is computed, which is in C order. */
static HJ_UNUSED void hj_result(hjit_array *out, int64_t itemsize, int32_t ndim, const int64_t *shape,
                                const int32_t *order) {
  hjit_array dense = hjit_dense(NULL, (size_t)itemsize, ndim, shape);
  out->ndim = ndim;
  for (int32_t k = 0; k < ndim; k++) {
    out->shape[k] = dense.shape[order[k]];
    out->strides[k] = dense.strides[order[k]];
  }
}

/* Elements from the first to the last one in memory. */
static HJ_UNUSED int64_t hj_reach(const hjit_array *a, int64_t itemsize) {
  int64_t reach = 0;
  for (int32_t k = 0; k < a->ndim; k++) reach += llabs(a->strides[k] / itemsize) * a->shape[k];
  return reach;
}

static HJ_UNUSED int hj_overlap(const hjit_array *a, int64_t a_itemsize, const hjit_array *b, int64_t b_itemsize) {
  const hjit_array *both[2] = {a, b};
  int64_t items[2] = {a_itemsize, b_itemsize};
  uintptr_t low[2], high[2];
  for (int j = 0; j < 2; j++) {
    if (!hjit_elements(both[j])) return 0;
    low[j] = (uintptr_t)both[j]->data;
    high[j] = low[j] + (uintptr_t)items[j];
    for (int32_t k = 0; k < both[j]->ndim; k++) {
      int64_t reach = both[j]->strides[k] * (both[j]->shape[k] - 1);
      if (reach < 0) low[j] += (uintptr_t)reach;
      else high[j] += (uintptr_t)reach;
    }
  }
  return low[0] < high[1] && low[1] < high[0];
}

/* Could two elements of an array be the same memory? */
static HJ_UNUSED int hj_overlaps_itself(const hjit_array *a, int64_t itemsize) {
  int64_t reach = itemsize;
  int used[HJIT_MAX_DIMS] = {0};
  for (int32_t j = 0; j < a->ndim; j++) {
    int32_t best = -1;
    for (int32_t k = 0; k < a->ndim; k++)
      if (!used[k] && (best < 0 || llabs(a->strides[k]) < llabs(a->strides[best]))) best = k;
    used[best] = 1;
    if (a->shape[best] <= 1) continue;
    if (llabs(a->strides[best]) < reach) return 1;
    reach += llabs(a->strides[best]) * (a->shape[best] - 1);
  }
  return 0;
}

/* Copy elements that are in C order to where they belong. */
static HJ_UNUSED void hj_write(const hjit_array *to, const void *from, size_t itemsize) {
  int64_t index[HJIT_MAX_DIMS] = {0};
  const char *source = (const char *)from;
  int32_t last = to->ndim - 1;
  int64_t run = last >= 0 ? to->shape[last] : 1;
  if (!hjit_elements(to)) return;
  for (;;) {
    char *target = (char *)to->data;
    int32_t k;
    for (k = 0; k < last; k++) target += index[k] * to->strides[k];
    if (last < 0 || to->strides[last] == (int64_t)itemsize) memcpy(target, source, itemsize * (size_t)run);
    else
      for (int64_t i = 0; i < run; i++) memcpy(target + i * to->strides[last], source + i * (int64_t)itemsize, itemsize);
    source += itemsize * (size_t)run;
    for (k = last - 1; k >= 0 && ++index[k] == to->shape[k]; k--) index[k] = 0;
    if (k < 0) return;
  }
}

/* -- scratch memory */

typedef struct {
  int64_t size, first, last, at; /* bytes, the nests between which it is needed, its offset */
} hj_part;

static HJ_UNUSED int64_t hj_aligned(int64_t size) { return (size + HJ_ALIGN - 1) / HJ_ALIGN * HJ_ALIGN; }

/* Large parts begin at different offsets within a page, so that a cache has lines for all of them. */
static HJ_UNUSED int64_t hj_staggered(int64_t size) {
  return size < HJ_LARGE ? size : (size + HJ_PAGE - 1) / HJ_PAGE * HJ_PAGE + HJ_STAGGER;
}

/* Give each part its place: first fit, in the order in which they are needed; those that are never needed at the same
   time share memory. */
static HJ_UNUSED int64_t hj_place(hj_part *parts, int n) {
  int64_t total = 0;
  for (int placed = 0; placed < n; placed++) {
    int next = -1;
    int64_t at = 0;
    for (int k = 0; k < n; k++) {
      if (parts[k].at >= 0) continue;
      if (next < 0 || parts[k].first < parts[next].first ||
          (parts[k].first == parts[next].first && parts[k].size > parts[next].size))
        next = k;
    }
    for (int moved = 1; moved;) {
      moved = 0;
      for (int k = 0; k < n; k++)
        if (parts[k].at >= 0 && parts[k].last >= parts[next].first && parts[k].at < at + parts[next].size &&
            at < parts[k].at + parts[k].size) {
          at = parts[k].at + parts[k].size;
          moved = 1;
        }
    }
    parts[next].at = at;
    total = at + parts[next].size > total ? at + parts[next].size : total;
  }
  return total;
}

typedef struct {
  void *block;
  size_t bytes;
  char *data; /* aligned */
} hj_memory;

static HJ_UNUSED int hj_allocate(const hjit_context *context, int64_t bytes, hj_memory *memory) {
  memory->bytes = (size_t)bytes + HJ_ALIGN + HJ_SLACK;
  memory->block = context && context->allocate ? context->allocate(context->user, memory->bytes) : malloc(memory->bytes);
  if (!memory->block) return HJIT_NO_MEMORY;
  memory->data = (char *)(((uintptr_t)memory->block + HJ_ALIGN - 1) / HJ_ALIGN * HJ_ALIGN);
  return HJIT_OK;
}

static HJ_UNUSED void hj_release(const hjit_context *context, hj_memory *memory) {
  if (!(context && context->allocate)) free(memory->block);
  else if (context->release) context->release(context->user, memory->block, memory->bytes);
}

/* -- threads */

typedef void (*hj_task)(int64_t *first, int64_t *count, int64_t *step, void *data);

static void hj_run_one(hj_task task, void *data, int64_t k) {
  int64_t one = 1;
  task(&k, &one, &one, data);
}

static _Thread_local const hjit_context *hj_context; /* of the call that this thread makes */

#ifdef HJIT_NO_THREADS

static void hj_pool_for(hj_task task, void *data, int64_t tasks, int threads) {
  (void)threads;
  for (int64_t k = 0; k < tasks; k++) hj_run_one(task, data, k);
}

#else

static struct {
  pthread_mutex_t busy;  /* one call at a time has the threads; others run alone */
  pthread_mutex_t lock;  /* guards the rest */
  pthread_cond_t work, done;
  pthread_t threads[HJ_MOST_THREADS];
  int started, wanted, active, stops, is_known_to_forks;
  hj_task task;
  void *data;
  int64_t tasks;
  atomic_llong next;
} hj_pool = {.busy = PTHREAD_MUTEX_INITIALIZER,
             .lock = PTHREAD_MUTEX_INITIALIZER,
             .work = PTHREAD_COND_INITIALIZER,
             .done = PTHREAD_COND_INITIALIZER};

static void hj_run_tasks(hj_task task, void *data, int64_t tasks) {
  for (long long k; (k = atomic_fetch_add(&hj_pool.next, 1)) < tasks;) hj_run_one(task, data, k);
}

static void *hj_worker(void *nothing) {
  (void)nothing;
  pthread_mutex_lock(&hj_pool.lock);
  for (;;) {
    while (!hj_pool.wanted && !hj_pool.stops) pthread_cond_wait(&hj_pool.work, &hj_pool.lock);
    if (hj_pool.stops) break;
    hj_task task = hj_pool.task;
    void *data = hj_pool.data;
    int64_t tasks = hj_pool.tasks;
    hj_pool.wanted--;
    hj_pool.active++;
    pthread_mutex_unlock(&hj_pool.lock);
    hj_run_tasks(task, data, tasks);
    pthread_mutex_lock(&hj_pool.lock);
    if (!--hj_pool.active) pthread_cond_signal(&hj_pool.done);
  }
  pthread_mutex_unlock(&hj_pool.lock);
  return NULL;
}

/* A child has none of its parent's threads. */
static void hj_in_child(void) {
  pthread_mutex_init(&hj_pool.busy, NULL);
  pthread_mutex_init(&hj_pool.lock, NULL);
  pthread_cond_init(&hj_pool.work, NULL);
  pthread_cond_init(&hj_pool.done, NULL);
  hj_pool.started = hj_pool.wanted = hj_pool.active = 0;
}

static void hj_pool_for(hj_task task, void *data, int64_t tasks, int threads) {
  if (pthread_mutex_trylock(&hj_pool.busy)) {
    for (int64_t k = 0; k < tasks; k++) hj_run_one(task, data, k);
    return;
  }
  pthread_mutex_lock(&hj_pool.lock);
  if (!hj_pool.is_known_to_forks) hj_pool.is_known_to_forks = !pthread_atfork(NULL, NULL, hj_in_child);
  if (threads > HJ_MOST_THREADS) threads = HJ_MOST_THREADS;
  while (hj_pool.started < threads - 1 &&
         !pthread_create(&hj_pool.threads[hj_pool.started], NULL, hj_worker, NULL))
    hj_pool.started++;
  hj_pool.task = task;
  hj_pool.data = data;
  hj_pool.tasks = tasks;
  atomic_store(&hj_pool.next, 0);
  hj_pool.wanted = hj_pool.started < threads - 1 ? hj_pool.started : threads - 1;
  pthread_cond_broadcast(&hj_pool.work);
  pthread_mutex_unlock(&hj_pool.lock);
  hj_run_tasks(task, data, tasks);
  pthread_mutex_lock(&hj_pool.lock);
  hj_pool.wanted = 0;
  while (hj_pool.active) pthread_cond_wait(&hj_pool.done, &hj_pool.lock);
  pthread_mutex_unlock(&hj_pool.lock);
  pthread_mutex_unlock(&hj_pool.busy);
}

/* The threads end before the library is unloaded. */
__attribute__((destructor)) static void hj_stop(void) {
  pthread_mutex_lock(&hj_pool.lock);
  hj_pool.stops = 1;
  pthread_cond_broadcast(&hj_pool.work);
  pthread_mutex_unlock(&hj_pool.lock);
  for (int k = 0; k < hj_pool.started; k++) pthread_join(hj_pool.threads[k], NULL);
}

#endif

typedef struct {
  hj_task task;
  void *data;
} hj_work;

static void hj_run_work(void *work, int64_t k) { hj_run_one(((hj_work *)work)->task, ((hj_work *)work)->data, k); }

/* What a kernel calls where a loop is worth several threads. */
static HJ_UNUSED void hj_parallel_for(hj_task task, int64_t *first, int64_t *count, int64_t *step, void *data,
                                      int64_t inner, int64_t arrays, int32_t threads) {
  (void)first, (void)step, (void)inner, (void)arrays;
  if (hj_context && hj_context->parallel) {
    hj_work work = {task, data};
    hj_context->parallel(hj_context->user, hj_run_work, &work, *count);
  } else {
    hj_pool_for(task, data, *count, threads);
  }
}
