#include "evenkeel/io/safetensors.hpp"
#include "whole_library.hpp"

int main() {
  const evenkeel::SafetensorsFile empty(evenkeel::safetensors_bytes({}));
  evenkeel::LayerNorm<float> norm(4);
  const bool nothing_loaded = evenkeel::load_safetensors(empty, norm, {.strict = false}).missing.size() == 2;
  return whole_library_works<float>() && nothing_loaded ? 0 : 1;
}
