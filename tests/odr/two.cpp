#include "whole_library.hpp"

bool two() { return whole_library_works<float>() && whole_library_works<double>(); }
