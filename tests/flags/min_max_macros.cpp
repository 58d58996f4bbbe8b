// windows.h and others define these macros: the library's headers must stand them, whatever was included before.
#include <bits/stdc++.h>

#include <Eigen/Dense>
#include <Eigen/Sparse>
#include <nlohmann/json.hpp>

#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))

#include "evenkeel/io/safetensors.hpp"
#include "whole_library.hpp"

int main() { return whole_library_works<float>() ? 0 : 1; }
