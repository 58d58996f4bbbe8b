#include "compiled_once.hpp"

EVENKEEL_LAYERS(, Eigen::half)
EVENKEEL_LAYERS(, Eigen::bfloat16)
