#include "whole_library.hpp"

int main() { return whole_library_works<float>() && whole_library_works<double>() ? 0 : 1; }
