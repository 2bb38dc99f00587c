# SPDX-License-Identifier: Apache-2.0
# The SSD tier: the only place that sees liburing and RocksDB.
list(APPEND FERMATA_SSD_SOURCES
  ssd_catalog.cc
  ssd_directory.cc
  ssd_format.cc
  ssd_pread_device.cc
  ssd_rocks_meta_store.cc
  ssd_store.cc
  ssd_tier.cc
  ssd_tier_io.cc
  ssd_uring_device.cc)
list(APPEND FERMATA_SSD_DEPS PkgConfig::uring RocksDB::rocksdb-shared Threads::Threads)
