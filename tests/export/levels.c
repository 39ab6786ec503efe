/* Calls `point`, of several levels: prints the one that runs, and what came of the call; results are in a file. */

#include <stdio.h>
#include "point.h"

enum { ROWS = 60, COLUMNS = 70 };

static float a[ROWS * COLUMNS], b[ROWS * COLUMNS], sum[ROWS * COLUMNS], shifted[ROWS * COLUMNS];

int main(void) {
  const char *target = point_target();
  int64_t shape[] = {ROWS, COLUMNS};
  hjit_array images[] = {hjit_dense(a, sizeof *a, 2, shape), hjit_dense(b, sizeof *b, 2, shape)};
  hjit_array out[2];
  int status = point_shape(&images[0], &images[1], &out[0], &out[1]);
  FILE *file = fopen("results", "wb");

  if (!file) return 2;
  for (int k = 0; k < ROWS * COLUMNS; k++) {
    a[k] = (float)(k * 7919 % 10007 % 251 + 1);
    b[ROWS * COLUMNS - 1 - k] = a[k];
  }
  if (status == HJIT_OK) {
    out[0].data = sum;
    out[1].data = shifted;
    status = point(&images[0], &images[1], 0.75, 5, &out[0], &out[1], NULL);
  }
  printf("%s: %s\n", target ? target : "none", hjit_message(status));
  fwrite(sum, sizeof *sum, ROWS * COLUMNS, file);
  fwrite(shifted, sizeof *shifted, ROWS * COLUMNS, file);
  return fclose(file) != 0;
}
