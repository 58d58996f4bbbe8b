// Makes Markdown tables of Google Benchmark's JSON files:
//
//     bench_table bench.md kernels.json scaling.json ...
//
// A benchmark's name is section/row/column/variant, of which section and variant may be missing: each program, section and
// variant gets a table. What stands in a cell follows from the benchmark's counters.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using Json = nlohmann::json;

/// What is said above the tables of a program's section.
struct Heading {
  std::string_view program, section, title, text;
};
constexpr std::array headings = {
    Heading{"kernels", "", "Layers against memory",
            "Time over that of a copy of the same bytes / over that of the least the work must move. One number where "
            "that is "
            "a copy: row norms and eval forward, dropout. batch_norm_forward must read once more; a norm's backward "
            "reads two "
            "arrays and writes one, batch_norm_backward after it has read both. Medians of pairs taken in turn, one "
            "thread, "
            "float unless it says double; columns is column-major, strided a block of a wider matrix. eigen_* is the "
            "same in "
            "Eigen's expressions."},
    Heading{
        "peers_onednn", "", "Beside oneDNN",
        "Our time over oneDNN's, the median of pairs taken in turn: below 1 ours is faster. In brackets microseconds, "
        "ours : oneDNN's. float, one thread."},
    Heading{
        "peers_onednn", "error", "Errors beside oneDNN's",
        "Largest error against long double over the result's largest number (over one where that is zero), ours : "
        "oneDNN's, float. large_mean is 1e4 +- 1e-2, constant has no spread, long takes statistics of 200,000 numbers, "
        "huge is +- 1e25."},
    Heading{
        "peers_torch", "", "Beside PyTorch",
        "Our time over PyTorch's, the median of pairs taken in turn: below 1 ours is faster. In brackets microseconds, "
        "ours : PyTorch's. float, one thread. PyTorch's rms_norm is put together from its parts; its dropout keeps the "
        "mask for backward, as ours does, in one bit an element."},
    Heading{"peers_torch", "error", "Errors beside PyTorch's",
            "Largest error against long double over the result's largest number (over one where that is zero), ours : "
            "PyTorch's, float. large_mean is 1e4 +- 1e-2, constant has no spread, long takes statistics of 200,000 "
            "numbers, "
            "huge is +- 1e25."},
    Heading{"scaling", "rows", "Growing rows",
            "Nanoseconds for an element, float, one thread, compiled with OpenMP if there is one: even where cost is "
            "linear, "
            "but for the steps from cache to cache."},
    Heading{"scaling", "columns", "Growing columns", "The same for columns."},
    Heading{"scaling", "threads", "Two threads",
            "Time of one thread over that of two, the median of pairs taken in turn; the results are the same bits."},
    Heading{"router_step", "", "A training step of the router's network",
            "Time of the step and of its parts, where it matters by kind of input."}};

template <typename... Arguments>
std::string format(const char* pattern, Arguments... arguments) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), pattern, arguments...);
  return text.data();
}

/// Three digits.
std::string number(double value) {
  if (value >= 99.5) return format("%.0f", value);
  return format(value >= 9.95 ? "%.1f" : value >= 0.0995 ? "%.2f" : "%.3f", value);
}

std::string error(double value) {
  if (value >= 1e30) return "not finite";
  return value == 0 ? "0" : format("%.1e", value);
}

std::string cell(const Json& benchmark) {
  if (benchmark.value("error_occurred", false)) return benchmark.value("error_message", "failed");
  const auto counter = [&](const char* name) { return benchmark.at(name).get<double>(); };
  if (benchmark.contains("ours_error")) return error(counter("ours_error")) + " : " + error(counter("peer_error"));
  if (benchmark.contains("peer_us"))
    return number(counter("ratio")) + " (" + number(counter("ours_us")) + " : " + number(counter("peer_us")) + ")";
  if (benchmark.contains("gb_s")) return number(counter("gb_s")) + " GB/s";
  if (benchmark.contains("x_limit") && counter("x_limit") != counter("x_copy"))
    return number(counter("x_copy")) + " / " + number(counter("x_limit"));
  for (const char* name : {"speedup", "ns_element", "x_copy"})
    if (benchmark.contains(name)) return number(counter(name));
  return number(counter("real_time")) + " " + benchmark.at("time_unit").get<std::string>();
}

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  std::istringstream stream(name);
  for (std::string part; std::getline(stream, part, '/');)
    if (part.find(':') == std::string::npos && part != "manual_time") parts.push_back(part);
  return parts;
}

/// The place of `name` in `names`, at the end of which it is added if it is new.
std::size_t place(std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  names.push_back(name);
  return names.size() - 1;
}

struct Table {
  std::string section, variant;
  std::vector<std::string> rows, columns;
  std::map<std::pair<std::size_t, std::size_t>, std::string> cells;
};

bool is_section(const std::string& program, const std::string& part) {
  return std::any_of(headings.begin(), headings.end(), [&](const Heading& heading) {
    return heading.program == program && !heading.section.empty() && heading.section == part;
  });
}

std::vector<Table> tables_of(const std::string& program, const Json& benchmarks) {
  std::vector<Table> tables;
  for (const Json& benchmark : benchmarks) {
    std::vector<std::string> parts = parts_of(benchmark.at("name").get<std::string>());
    std::string section;
    if (parts.size() > 1 && is_section(program, parts[0])) {
      section = parts[0];
      parts.erase(parts.begin());
    }
    std::string variant;
    for (std::size_t i = 2; i < parts.size(); ++i) variant += (i > 2 ? ", " : "") + parts[i];
    auto table = std::find_if(tables.begin(), tables.end(),
                              [&](const Table& each) { return each.section == section && each.variant == variant; });
    if (table == tables.end()) table = tables.insert(tables.end(), Table{section, variant, {}, {}, {}});
    const std::size_t row = place(table->rows, parts.at(0));
    const std::size_t column = place(table->columns, parts.size() > 1 ? parts[1] : "");
    table->cells[{row, column}] = cell(benchmark);
  }
  return tables;
}

void write(std::ostream& out, const std::string& program, const std::vector<Table>& tables) {
  std::string last_section = "none yet";
  for (const Table& table : tables) {
    if (table.section != last_section) {
      const auto heading = std::find_if(headings.begin(), headings.end(), [&](const Heading& each) {
        return each.program == program && each.section == table.section;
      });
      if (heading != headings.end())
        out << "\n## " << heading->title << "\n\n" << heading->text << '\n';
      else
        out << "\n## " << program << ' ' << table.section << '\n';
      last_section = table.section;
    }
    out << "\n| " << table.variant << " |";
    for (const std::string& column : table.columns) out << ' ' << column << " |";
    out << "\n|---|";
    for (std::size_t i = 0; i < table.columns.size(); ++i) out << "---:|";
    for (std::size_t row = 0; row < table.rows.size(); ++row) {
      out << "\n| " << table.rows[row] << " |";
      for (std::size_t column = 0; column < table.columns.size(); ++column) {
        const auto found = table.cells.find({row, column});
        out << ' ' << (found == table.cells.end() ? "" : found->second) << " |";
      }
    }
    out << '\n';
  }
}

/// As Linux names it; empty elsewhere.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return {};
}

std::string bytes(double size) {
  return size < 1048576 ? number(size / 1024) + " KiB" : number(size / 1048576) + " MiB";
}

/// One line for each thing that the numbers depend on, as the programs give them.
void write_circumstances(std::ostream& out, const std::vector<Json>& files) {
  const Json& first = files.at(0).at("context");
  out << "- machine: " << processor() << ", " << first.at("num_cpus") << " CPUs";
  for (const Json& cache : first.at("caches"))
    if (cache.at("type") != "Instruction")
      out << ", L" << cache.at("level") << ' ' << bytes(cache.at("size").get<double>());
  out << '\n';
  std::vector<std::string> seen;
  for (const Json& file : files)
    for (const char* key : {"evenkeel", "eigen", "onednn", "pytorch", "compiler", "flags"}) {
      if (!file.at("context").contains(key) || std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
      seen.push_back(key);
      out << "- " << key << ": " << file.at("context").at(key).get<std::string>() << '\n';
    }
  out << "- date: " << first.at("date").get<std::string>().substr(0, 10) << '\n';
}

std::string program_of(const Json& file) {
  const auto path = file.at("context").at("executable").get<std::string>();
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: bench_table OUTPUT.md BENCHMARKS.json...\n";
    return 2;
  }
  std::vector<Json> files;
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i]);
    if (!file) throw std::runtime_error(std::string("cannot read ") + argv[i]);
    files.push_back(Json::parse(file));
  }
  std::ofstream out(argv[1]);
  out << "# Benchmarks\n\n";
  write_circumstances(out, files);
  for (const Json& file : files) write(out, program_of(file), tables_of(program_of(file), file.at("benchmarks")));
  if (!out.flush()) throw std::runtime_error(std::string("cannot write ") + argv[1]);
} catch (const std::exception& exception) {
  std::cerr << "bench_table: " << exception.what() << '\n';
  return 1;
}
