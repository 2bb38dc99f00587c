// SPDX-License-Identifier: Apache-2.0
#include "cache/prefix_index.h"
