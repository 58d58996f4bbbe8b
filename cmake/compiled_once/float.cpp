#include "compiled_once.hpp"

EVENKEEL_ALL(, float)
