// SPDX-License-Identifier: Apache-2.0
//
// How structs cross the C ABI: read into a whole one of ours whatever size the caller's has,
// written back as far as the caller's goes. The rules are those of the kernel's
// copy_struct_from_user (see include/fermata/fermata.h, "Structs").
#pragma once

#include <fermata/fermata.h>

#include <cstring>
#include <string>

#include "base/status.h"

namespace fermata::c {

constexpr uint32_t kMaxStructSize = 4096;
constexpr size_t kMaxBatch = 65536;

// A size that some version of T can have: a multiple of its alignment, so that it cuts no field in
// two (half a pointer would be followed).
template <typename T>
bool IsStructSize(uint64_t size) {
  return size >= sizeof(uint32_t) && size <= kMaxStructSize && size % alignof(T) == 0;
}

template <typename T>
Status CheckStructSize(uint32_t size, const char* name) {
  if (IsStructSize<T>(size)) return Status();
  return ErrorF(StatusCode::kInvalidArgument,
                "%s.struct_size is %u, want sizeof the struct (%zu, or another multiple of %zu)",
                name, size, sizeof(T), alignof(T));
}

// Copies *in (of its own struct_size) into *out.
template <typename T>
Status ReadStruct(const T* in, const char* name, T* out) {
  if (in == nullptr) return ErrorF(StatusCode::kInvalidArgument, "%s is NULL", name);
  uint32_t size = 0;
  std::memcpy(&size, in, sizeof size);
  FERMATA_RETURN_IF_ERROR(CheckStructSize<T>(size, name));
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "%s.struct_size is %u: byte %zu, beyond what this version knows, is not zero",
                    name, size, i);
    }
  }
  *out = T{};
  std::memcpy(static_cast<void*>(out), in, size < sizeof(T) ? size : sizeof(T));
  out->struct_size = size;
  return Status();
}

// Copies *from back, as far as the caller's struct goes; sets struct_size to what was written.
template <typename T>
void WriteStruct(const T& from, T* to, uint32_t caller_size) {
  const uint32_t size = caller_size < sizeof(T) ? caller_size : static_cast<uint32_t>(sizeof(T));
  std::memcpy(static_cast<void*>(to), &from, size);
  std::memcpy(static_cast<void*>(to), &size, sizeof size);
}

// The element `i` of an array whose elements have the struct_size of the first.
template <typename T>
T* Element(T* items, size_t i) {
  uint32_t stride = 0;
  std::memcpy(&stride, items, sizeof stride);
  using Byte = std::conditional_t<std::is_const_v<T>, const unsigned char, unsigned char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(items) + i * stride);
}

// Checks an array argument as a whole: its elements lie one struct_size apart.
template <typename T>
Status CheckArray(const T* items, size_t count, size_t max, const char* name) {
  if (count > max)
    return ErrorF(StatusCode::kInvalidArgument, "count is %zu, want at most %zu", count, max);
  if (count == 0) return Status();
  if (items == nullptr)
    return ErrorF(StatusCode::kInvalidArgument, "%s is NULL, but count is %zu", name, count);
  uint32_t stride = 0;
  std::memcpy(&stride, items, sizeof stride);
  FERMATA_RETURN_IF_ERROR(CheckStructSize<T>(stride, (std::string(name) + "[0]").c_str()));
  for (size_t i = 1; i < count; ++i) {
    uint32_t other = 0;
    std::memcpy(&other, Element(items, i), sizeof other);
    if (other != stride) {
      return ErrorF(StatusCode::kInvalidArgument,
                    "%s[%zu].struct_size is %u, but that of the first is %u", name, i, other,
                    stride);
    }
  }
  return Status();
}

// Writes the i-th element of an array that CheckArray has passed; the array keeps its stride.
template <typename T>
void WriteElement(const T& from, T* items, size_t i) {
  uint32_t stride = 0;
  std::memcpy(&stride, items, sizeof stride);
  T* const to = Element(items, i);
  WriteStruct(from, to, stride);
  std::memcpy(static_cast<void*>(to), &stride, sizeof stride);
}

// Runs `one` on every element, which reports through the element's own status and reason.
template <typename T, typename F>
Status ForEachItem(T* items, size_t count, F&& one) {
  FERMATA_RETURN_IF_ERROR(CheckArray(items, count, kMaxBatch, "items"));
  for (size_t i = 0; i < count; ++i) {
    T item;
    FERMATA_RETURN_IF_ERROR(ReadStruct(Element(items, i), "items[]", &item));
    const Status status = one(&item);
    item.status = static_cast<fermata_status>(status.code());
    item.reason = static_cast<uint32_t>(status.reason());
    WriteElement(item, items, i);
    if (count == 1 && !status.ok())
      return status;  // A batch of one answers as a plain call does, text included.
  }
  return Status();
}

inline Status CheckBytes(const fermata_bytes& bytes, const char* name, std::string* out) {
  if (bytes.size > 65536) {
    return ErrorF(StatusCode::kInvalidArgument, "%s.size is %llu, want at most 65536", name,
                  static_cast<unsigned long long>(bytes.size));
  }
  if (bytes.size > 0 && bytes.data == nullptr) {
    return ErrorF(StatusCode::kInvalidArgument, "%s.data is NULL, but %s.size is %llu", name, name,
                  static_cast<unsigned long long>(bytes.size));
  }
  out->assign(static_cast<const char*>(bytes.size == 0 ? "" : bytes.data), bytes.size);
  return Status();
}

}  // namespace fermata::c
