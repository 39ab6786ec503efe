/* Reads two images, calls two exported functions, writes what they compute. */

#include <stdio.h>
#include <stdlib.h>

#include "changed.h"
#include "point.h"

static void check(int status) {
  if (status != HJIT_OK) {
    fprintf(stderr, "%s\n", hjit_message(status));
    exit(1);
  }
}

static void *allocated(const hjit_array *a) {
  void *data = malloc((size_t)hjit_elements(a) * sizeof(float));
  if (!data) exit(1);
  return data;
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  int64_t shape[] = {atoi(arguments[1]), atoi(arguments[2])};
  size_t n = (size_t)(shape[0] * shape[1]);
  hjit_array a = hjit_dense(malloc(n * sizeof(float)), sizeof(float), 2, shape);
  hjit_array b = hjit_dense(malloc(n * sizeof(float)), sizeof(float), 2, shape);
  FILE *file = fopen("data", "rb");
  if (!file || fread(a.data, sizeof(float), n, file) != n || fread(b.data, sizeof(float), n, file) != n) return 3;
  fclose(file);

  hjit_context threads = {.threads = 2};
  hjit_array sum, shifted, scaled;
  check(point_shape(&a, &b, &sum, &shifted));
  sum.data = allocated(&sum);
  shifted.data = allocated(&shifted);
  check(point(&a, &b, 0.75, 5, &sum, &shifted, &threads));
  check(changed_shape(&a, &b, &scaled));
  scaled.data = allocated(&scaled);
  check(changed(&a, &b, &scaled, NULL));

  file = fopen("results", "wb");
  const hjit_array *all[] = {&sum, &shifted, &scaled, &a};
  for (int k = 0; k < 4; k++)
    if (!file || fwrite(all[k]->data, sizeof(float), n, file) != n) return 4;
  return fclose(file) ? 5 : 0;
}
