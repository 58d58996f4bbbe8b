#pragma once

#include <Eigen/Core>  // first: a header of clang's that it includes declares posix_memalign once more, less strictly

#include <malloc.h>  // memalign
#include <stdlib.h>  // posix_memalign, aligned_alloc

#include <cerrno>   // ENOMEM, EINVAL
#include <cstddef>  // size_t

#if !defined(__GLIBC__)
#error "these tests count allocations by standing in for glibc's allocator"
#endif

/// Counts every request for memory of the whole program, by whatever way: operator new and Eigen go through these. For one
/// file a program: it defines malloc.
namespace allocation {

inline long requests = 0;      // of one thread: the tests have no other
inline std::size_t bytes = 0;  // that these asked for

/// How many requests a piece of code makes.
template <class Code>
long count(const Code& code) {
  const long before = requests;
  code();
  return requests - before;
}

/// How many bytes it asks for.
template <class Code>
std::size_t bytes_of(const Code& code) {
  const std::size_t before = bytes;
  code();
  return bytes - before;
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
  allocation::bytes += size;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  ++allocation::requests;
  allocation::bytes += count * size;
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) noexcept {
  ++allocation::requests;
  allocation::bytes += size;
  return __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  ++allocation::requests;
  allocation::bytes += size;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  ++allocation::requests;
  allocation::bytes += size;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  ++allocation::requests;
  allocation::bytes += size;
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) return EINVAL;
  void* const got = __libc_memalign(alignment, size);
  if (got == nullptr) return ENOMEM;
  *memory = got;
  return 0;
}
void free(void* memory) noexcept { __libc_free(memory); }

}  // extern "C"
