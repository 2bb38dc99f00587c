// SPDX-License-Identifier: Apache-2.0
// What the planted faults beside it are to be put into.
int once = 1;
int twice = 2;
int again = 2;
