#pragma once

#include <Eigen/Core>  // first: a header of clang's that it includes declares posix_memalign once more, less strictly

#include <malloc.h>  // memalign, malloc_usable_size
#include <stdlib.h>  // posix_memalign, aligned_alloc

#include <cerrno>   // ENOMEM, EINVAL
#include <cstddef>  // size_t

#if !defined(__GLIBC__)
#error "these tests count allocations by standing in for glibc's allocator"
#endif

/// Counts every request for memory of the whole program, by whatever way, and the bytes it holds: operator new and Eigen go
/// through these. For one file a program: it defines malloc.
namespace allocation {

// Of one thread: the tests have no other.
inline long requests = 0;
inline long held = 0;  // bytes, as the allocator rounds them
inline long peak = 0;  // the most that was held

inline void* taken(void* memory) {
  held += static_cast<long>(malloc_usable_size(memory));
  if (held > peak) peak = held;
  return memory;
}
inline void given_back(void* memory) { held -= static_cast<long>(malloc_usable_size(memory)); }

/// How many requests a piece of code makes.
template <class Code>
long count(const Code& code) {
  const long before = requests;
  code();
  return requests - before;
}

/// Bytes that are held more than before a piece of code: when it is done, and at most while it runs.
struct Bytes {
  long after, most;
};

template <class Code>
Bytes bytes(const Code& code) {
  const long before = held;
  peak = held;
  code();
  return {held - before, peak - before};
}

}  // namespace allocation

extern "C" {

void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* memory);

void* malloc(std::size_t size) noexcept {
  ++allocation::requests;
  return allocation::taken(__libc_malloc(size));
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  ++allocation::requests;
  return allocation::taken(__libc_calloc(count, size));
}
void* realloc(void* old, std::size_t size) noexcept {
  ++allocation::requests;
  allocation::given_back(old);
  return allocation::taken(__libc_realloc(old, size));
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  ++allocation::requests;
  return allocation::taken(__libc_memalign(alignment, size));
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  ++allocation::requests;
  return allocation::taken(__libc_memalign(alignment, size));
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  ++allocation::requests;
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) return EINVAL;
  void* const got = __libc_memalign(alignment, size);
  if (got == nullptr) return ENOMEM;
  *memory = allocation::taken(got);
  return 0;
}
void free(void* memory) noexcept {
  allocation::given_back(memory);
  __libc_free(memory);
}

}  // extern "C"
