// SPDX-License-Identifier: Apache-2.0
//
// Clang's thread-safety attributes under our names; nothing elsewhere. Checked by the `clang`
// preset (-Wthread-safety).
#pragma once

#if defined(__clang__)
#define FERMATA_TSA(x) __attribute__((x))
#else
#define FERMATA_TSA(x)
#endif

#define FERMATA_CAPABILITY(name) FERMATA_TSA(capability(name))
#define FERMATA_SCOPED_CAPABILITY FERMATA_TSA(scoped_lockable)
#define FERMATA_GUARDED_BY(mu) FERMATA_TSA(guarded_by(mu))
#define FERMATA_PT_GUARDED_BY(mu) FERMATA_TSA(pt_guarded_by(mu))
#define FERMATA_ACQUIRED_AFTER(...) FERMATA_TSA(acquired_after(__VA_ARGS__))
#define FERMATA_REQUIRES(...) FERMATA_TSA(requires_capability(__VA_ARGS__))
#define FERMATA_REQUIRES_SHARED(...) FERMATA_TSA(requires_shared_capability(__VA_ARGS__))
#define FERMATA_ACQUIRE_SHARED(...) FERMATA_TSA(acquire_shared_capability(__VA_ARGS__))
#define FERMATA_RELEASE_SHARED(...) FERMATA_TSA(release_shared_capability(__VA_ARGS__))
#define FERMATA_RELEASE_GENERIC(...) FERMATA_TSA(release_generic_capability(__VA_ARGS__))
#define FERMATA_EXCLUDES(...) FERMATA_TSA(locks_excluded(__VA_ARGS__))
#define FERMATA_ACQUIRE(...) FERMATA_TSA(acquire_capability(__VA_ARGS__))
#define FERMATA_RELEASE(...) FERMATA_TSA(release_capability(__VA_ARGS__))
#define FERMATA_ASSERT_HELD(...) FERMATA_TSA(assert_capability(__VA_ARGS__))
#define FERMATA_ASSERT_READER_HELD(...) FERMATA_TSA(assert_shared_capability(__VA_ARGS__))
#define FERMATA_NO_TSA FERMATA_TSA(no_thread_safety_analysis)
