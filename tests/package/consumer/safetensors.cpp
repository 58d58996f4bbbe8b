#include <evenkeel/io/safetensors_file.hpp>

// Linked by the consumers that ask for evenkeel::safetensors.
bool reads_what_it_writes() { return evenkeel::SafetensorsFile(evenkeel::safetensors_bytes({})).tensors().empty(); }
