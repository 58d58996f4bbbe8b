#include "kernels_once/kernels_once.hpp"

EVENKEEL_KERNELS(, long double)
