#pragma once

#include <algorithm>  // max
#include <cstddef>    // size_t
#include <sstream>
#include <string>
#include <vector>

#include "evenkeel/core/parameter.hpp"  // ParameterKind
#include "evenkeel/network/layer.hpp"   // name_of

namespace evenkeel {

/// A table of a network's layers: position, name, output shape, number of parameters, and how many of these are weights,
/// which optimizers decay by default. For networks with a fixed number of input features.
///
///     layer  type       output        parameters  decayed
///     0      Linear     (batch, 64)        25088    25024
template <class Network>
std::string summary(const Network& network) {
  std::vector<std::vector<std::string>> rows = {{"layer", "type", "output", "parameters", "decayed"}};
  Index features = network.input_features();
  Index all = 0;
  Index all_decayed = 0;
  for (Index i = 0; i < network.layer_count(); ++i)
    network.visit(i, [&](const auto& layer) {
      Index size = 0;
      Index decayed = 0;
      if constexpr (requires { layer.parameters(); })
        for (const auto& parameter : layer.parameters()) {
          size += parameter.size();
          if (parameter.kind == ParameterKind::weight) decayed += parameter.size();
        }
      features = layer.output_features(features);
      rows.push_back({std::to_string(i), std::string(name_of(layer)), "(batch, " + std::to_string(features) + ")",
                      std::to_string(size), std::to_string(decayed)});
      all += size;
      all_decayed += decayed;
    });
  rows.push_back({"", "", "total", std::to_string(all), std::to_string(all_decayed)});

  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = (std::max)(widths[c], row[c].size());
  std::ostringstream out;
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - row[c].size(), ' ');
      const bool number = c >= 3;
      out << (c == 0 ? "" : "  ") << (number ? space : "") << row[c] << (number ? "" : space);
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace evenkeel
