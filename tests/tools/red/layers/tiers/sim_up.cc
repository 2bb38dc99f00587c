// SPDX-License-Identifier: Apache-2.0
#include <rocksdb/db.h>
