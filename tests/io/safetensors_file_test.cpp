#include "evenkeel/io/safetensors_file.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "core/error_of.hpp"
#include "io/bytes.hpp"

namespace ek = evenkeel;
using bytes::parse;
using bytes::operator+;

namespace {

/// The error for a header and its data.
std::string refused(const std::string& header, const bytes::Bytes& data = {}) {
  return error_of([&] { parse(header, data); });
}
/// The same for all bytes of a file.
std::string refused_bytes(const bytes::Bytes& content) {
  return error_of([&] { ek::SafetensorsFile(content, "f"); });
}

const bytes::Bytes four = bytes::of({1.0F, 2.0F, 3.0F, 4.0F});  // 16 bytes

std::string a_with(const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

std::vector<float> numbers(const ek::SafetensorsFile& file, const std::string& name) {
  const ek::Matrix<float> matrix = file.matrix<float>(name);
  return {matrix.data(), matrix.data() + matrix.size()};
}

}  // namespace

TEST_CASE("SFT-1: The length of the header is checked before anything is made of it", "[safetensors_file]") {
  const auto start = std::chrono::steady_clock::now();
  CHECK(refused_bytes({}) == "FormatError: f: expected the header's length in 8 bytes, got 0");
  CHECK(refused_bytes(bytes::of("1234567")) == "FormatError: f: expected the header's length in 8 bytes, got 7");
  CHECK(refused_bytes(bytes::file(100, "{}")) == "FormatError: f: expected a header of 100 bytes, got 2");
  CHECK(refused_bytes(bytes::file(0, "{}")) ==
        "FormatError: f: expected a header that begins with {, got one of length 0");
  CHECK(refused_bytes(bytes::file(100'000'000, "{}")) == "FormatError: f: expected a header of 100000000 bytes, got 2");
  for (const std::uint64_t length :
       {std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 4, std::uint64_t{100'000'001}})
    CHECK(refused_bytes(bytes::file(length, "{}")) ==
          "FormatError: f: expected a header of at most 100000000 bytes, got length " + std::to_string(length));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
}

TEST_CASE("SFT-1: A path that is missing, a directory or not to be opened is a FormatError with the path",
          "[safetensors_file]") {
  const bytes::Folder folder;
  const auto refused_path = [](const std::filesystem::path& path) {
    return error_of([&] { ek::SafetensorsFile{path}; });
  };
  const std::filesystem::path missing = folder / "missing.safetensors";
  CHECK(refused_path(missing) ==
        "FormatError: " + missing.string() + ": expected a file that can be read, got: No such file or directory");
  CHECK(refused_path(folder / ".") ==
        "FormatError: " + (folder / ".").string() + ": expected a file that can be read, got: Is a directory");
  const std::filesystem::path loop = folder / "loop";
  std::filesystem::create_symlink(loop, loop);  // stands for wrong permissions, which root does not have
  CHECK(refused_path(loop) ==
        "FormatError: " + loop.string() + ": expected a file that can be read, got: Too many levels of symbolic links");
}

TEST_CASE("SFT-2: Shape, type, offsets and file have to agree", "[safetensors_file]") {
  const std::string a = "FormatError: f: tensor \"a\": expected ";
  CHECK(refused(a_with("[1000,1000]", "[0,16]"), four) ==
        a + "data_offsets that are 4000000 bytes apart, for F32 of shape (1000, 1000), got [0, 16]");
  CHECK(refused(a_with("[2]", "[0,16]"), four) ==
        a + "data_offsets that are 8 bytes apart, for F32 of shape (2,), got [0, 16]");
  CHECK(refused(a_with("[4]", "[0,16]"), bytes::of({1.0F, 2.0F, 3.0F})) ==
        a + "data within the file's 12 bytes of data, got data_offsets [0, 16]");
  const std::string pair = a + "data_offsets [begin, end] with begin <= end, got ";
  CHECK(refused(a_with("[4]", "[16,0]"), four) == pair + "[16, 0]");
  CHECK(refused(a_with("[4]", "[0]"), four) == pair + "[0]");
  CHECK(refused(a_with("[4]", "[]"), four) == pair + "[]");
  CHECK(refused(a_with("[4]", "[0,16,32]"), four) == pair + "[0, 16, 32]");
  const std::string whole = a + "data_offsets to be an array of whole numbers >= 0, got ";
  CHECK(refused(a_with("[4]", "[-16,0]"), four) == whole + "-16");
  CHECK(refused(a_with("[4]", R"([0,"16"])"), four) == whole + "a string");
  CHECK(refused(a_with("[4]", "16"), four) == whole + "16");
  const std::string sizes = a + "shape to be an array of whole numbers >= 0, got ";
  CHECK(refused(a_with("[4.0]", "[0,16]"), four) == sizes + "4.0");
  CHECK(refused(a_with("[-4]", "[0,16]"), four) == sizes + "-4");
  CHECK(refused(a_with("[[4]]", "[0,16]"), four) == sizes + "an array");
  CHECK(refused(a_with("[true]", "[0,16]"), four) == sizes + "true or false");
  CHECK(refused(a_with("4", "[0,16]"), four) == sizes + "4");
  CHECK(refused(a_with("null", "[0,16]"), four) == sizes + "null");
}

TEST_CASE("SFT-2: Sizes whose product overflows are refused", "[safetensors_file]") {
  CHECK(refused(a_with("[4294967296,4294967296]", "[0,0]")) ==
        "FormatError: f: tensor \"a\": expected data_offsets that are more than 2^64 bytes apart, for F32 of shape "
        "(4294967296, 4294967296), got [0, 0]");
  CHECK(refused(a_with("[18446744073709551616]", "[0,0]")) ==
        "FormatError: f: tensor \"a\": expected shape to be an array of whole numbers >= 0, got 18446744073709551616");
}

TEST_CASE("SFT-3: A key that comes twice is refused on every level", "[safetensors_file]") {
  const std::string f32 = R"("dtype":"F32","shape":[2],)";
  const std::string first = "{" + f32 + R"("data_offsets":[0,8]})";
  const std::string second = "{" + f32 + R"("data_offsets":[8,16]})";
  CHECK(refused(R"({"a":)" + first + R"(,"a":)" + second + "}", four) ==
        "FormatError: f: header: expected distinct keys, got \"a\" twice");
  CHECK(refused(R"({"a":)" + first + R"(,"\u0061":)" + second + "}", four) ==
        "FormatError: f: header: expected distinct keys, got \"a\" twice");
  CHECK(refused(R"({"a":{"shape":[2],)" + f32 + R"("data_offsets":[0,8]}})", four) ==
        "FormatError: f: tensor \"a\": expected distinct keys, got \"shape\" twice");
  CHECK(refused(R"({"__metadata__":{"a":"b"},"__metadata__":{"a":"b"}})") ==
        "FormatError: f: header: expected distinct keys, got \"__metadata__\" twice");
  CHECK(refused(R"({"__metadata__":{"a":"b","a":"b"}})") ==
        "FormatError: f: \"__metadata__\": expected distinct keys, got \"a\" twice");
  CHECK(numbers(parse(R"({"a":)" + first + R"(,"b":)" + second + "}", four), "b") == std::vector{3.0F, 4.0F});
}

TEST_CASE("SFT-4: Tensors that share bytes or leave some out are refused", "[safetensors_file]") {
  const auto two = [](const std::string& a_shape, const std::string& a, const std::string& b_shape,
                      const std::string& b) {
    return R"({"a":{"dtype":"F32","shape":)" + a_shape + R"(,"data_offsets":)" + a +
           R"(},"b":{"dtype":"F32","shape":)" + b_shape + R"(,"data_offsets":)" + b + "}}";
  };
  CHECK(refused(two("[4]", "[0,16]", "[4]", "[0,16]"), four)
            .ends_with(
                "expected data that begin at byte 16, where those of \"a\" end, got data_offsets [0, 16], an overlap"));
  CHECK(refused(two("[2]", "[0,8]", "[2]", "[4,12]"), bytes::of({1.0F, 2.0F, 3.0F})) ==
        "FormatError: f: tensor \"b\": expected data that begin at byte 8, where those of \"a\" end, got data_offsets "
        "[4, 12], an overlap");
  CHECK(refused(two("[1]", "[0,4]", "[2]", "[8,16]"), four) ==
        "FormatError: f: tensor \"b\": expected data that begin at byte 4, where those of \"a\" end, got data_offsets "
        "[8, 16], a hole");
  CHECK(refused(a_with("[1]", "[4,8]"), bytes::of({1.0F, 2.0F})) ==
        "FormatError: f: tensor \"a\": expected data that begin at byte 0, got data_offsets [4, 8], a hole");
  CHECK(refused(a_with("[2]", "[0,8]"), four) ==
        "FormatError: f: expected 8 bytes of data, where those of \"a\" end, got 16");
  CHECK(refused("{}", four) == "FormatError: f: expected 0 bytes of data, where those of no tensor end, got 16");

  const ek::SafetensorsFile unordered = parse(two("[2]", "[8,16]", "[2]", "[0,8]"), four);
  CHECK(numbers(unordered, "a") == std::vector{3.0F, 4.0F});
  CHECK(numbers(unordered, "b") == std::vector{1.0F, 2.0F});
  const ek::SafetensorsFile empty = parse(two("[0]", "[0,0]", "[0]", "[0,0]"));
  CHECK(numbers(empty, "a").empty());
  CHECK(numbers(empty, "b").empty());
}

TEST_CASE("SFT-5: Data may lie at any address", "[safetensors_file]") {
  const std::string header =
      R"({"h":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"w":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})";
  for (std::size_t spaces = 0; spaces < 4; ++spaces) {
    const ek::SafetensorsFile file =
        parse(header + std::string(spaces, ' '), bytes::of<std::uint16_t>({0x3C00}) + bytes::of({2.0F}));
    CHECK(numbers(file, "h") == std::vector{1.0F});
    CHECK(numbers(file, "w") == std::vector{2.0F});
  }
}

TEST_CASE("SFT-6: Offsets count from the end of the header", "[safetensors_file]") {
  const std::string tensors =
      R"("first":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"second":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})";
  const bytes::Bytes data = bytes::of({1.0F, 2.0F, 5.0F, 6.0F});
  CHECK(numbers(parse("{" + tensors, data), "second") == std::vector{5.0F, 6.0F});
  const std::string longer = R"({"__metadata__":{"k":")" + std::string(300, 'x') + R"("},)" + tensors;
  CHECK(numbers(parse(longer, data), "second") == std::vector{5.0F, 6.0F});
}

TEST_CASE("SFT-7: Metadata are strings, wherever they stand", "[safetensors_file]") {
  const std::string a = R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]})";
  const ek::SafetensorsFile first = parse(R"({"__metadata__":{"format":"pt","k":"a,b}{\"x"},)" + a + "}", four);
  CHECK(numbers(first, "a") == std::vector{1.0F, 2.0F, 3.0F, 4.0F});
  CHECK(first.tensors().size() == 1);
  CHECK(first.metadata() == ek::TensorMetadata{{"format", "pt"}, {"k", "a,b}{\"x"}});
  CHECK(parse("{" + a + R"(,"__metadata__":{"format":"pt"}})", four).metadata().at("format") == "pt");
  CHECK(parse("{" + a + "}", four).metadata().empty());

  const std::string place = "FormatError: f: \"__metadata__\": expected ";
  CHECK(refused(R"({"__metadata__":{"n":0}})") == place + "a string for \"n\", got 0");
  CHECK(refused(R"({"__metadata__":{"n":{}}})") == place + "a string for \"n\", got an object");
  CHECK(refused(R"({"__metadata__":[]})") == place + "an object of strings, got an array");
  CHECK(refused(R"({"__metadata__":"pt"})") == place + "an object of strings, got a string");
  CHECK(refused(R"({"__metadata__":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", four) ==
        place + "a string for \"shape\", got an array");
}

TEST_CASE("SFT-8: Single numbers and empty tensors are read", "[safetensors_file]") {
  const ek::SafetensorsFile one = parse(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", bytes::of({2.5F}));
  CHECK(one.at("s").shape.empty());
  CHECK(one.matrix<double>("s") == ek::Matrix<double>::Constant(1, 1, 2.5));

  const ek::SafetensorsFile both = parse(
      R"({"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      bytes::of({7.0F}));
  CHECK(numbers(both, "e").empty());
  CHECK(numbers(both, "w") == std::vector{7.0F});

  const ek::SafetensorsFile empty = parse(R"({"e":{"dtype":"F32","shape":[2,0],"data_offsets":[0,0]}})");
  CHECK(empty.matrix<float>("e").rows() == 2);
  CHECK(empty.matrix<float>("e").cols() == 0);
  CHECK(
      refused(a_with("[1]", "[0,0]")) ==
      "FormatError: f: tensor \"a\": expected data_offsets that are 4 bytes apart, for F32 of shape (1,), got [0, 0]");
}

TEST_CASE("A header that is not JSON, or not of the format, is refused", "[safetensors_file]") {
  CHECK(refused("[]") == "FormatError: f: expected a header that begins with {, got another byte");
  CHECK(refused(" {}") == "FormatError: f: expected a header that begins with {, got another byte");
  CHECK(
      refused("{\"a\"").starts_with("FormatError: f: expected a header of JSON, got a parse error at line 1, column"));
  CHECK(refused("{} x").starts_with("FormatError: f: expected a header of JSON, got a parse error"));
  CHECK(refused("{\"\xff\":{}}").starts_with("FormatError: f: expected a header of JSON, got a parse error"));
  CHECK(refused(std::string("{}\0x", 4)) == "FormatError: f: expected a header of JSON, got a zero byte in it");
  CHECK(refused(R"({"a":1e999})").starts_with("FormatError: f: expected a header of JSON, got a number overflow"));
  CHECK(refused(std::string(100'000, '[').replace(0, 5, "{\"a\":")) ==
        "FormatError: f: tensor \"a\": expected an object of dtype, shape and data_offsets, got an array");
  CHECK(refused(R"({"a":5})") ==
        "FormatError: f: tensor \"a\": expected an object of dtype, shape and data_offsets, got 5");
  CHECK(refused(R"({"a":{"dtype":"F32","shape":[1]}})") ==
        "FormatError: f: tensor \"a\": expected dtype, shape and data_offsets, got no data_offsets");
  CHECK(refused(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})") ==
        "FormatError: f: tensor \"a\": expected dtype, shape and data_offsets, got no shape");
  CHECK(refused(R"({"a":{}})") == "FormatError: f: tensor \"a\": expected dtype, shape and data_offsets, got no dtype");
  CHECK(refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"scale":2}})", four) ==
        "FormatError: f: tensor \"a\": expected dtype, shape and data_offsets, got \"scale\"");
  CHECK(refused(R"({"a":{"dtype":"Q4"}})") ==
        "FormatError: f: tensor \"a\": expected a dtype of the format, such as \"F32\", got \"Q4\"");
  CHECK(refused(R"({"a":{"dtype":32}})") == "FormatError: f: tensor \"a\": expected dtype to be a string, got 32");
  CHECK(refused(R"({"a":{"dtype":{}}})") ==
        "FormatError: f: tensor \"a\": expected dtype to be a string, got an object");
  CHECK(parse("{}   ").tensors().empty());
}

TEST_CASE("Numbers are asked for by name, shape and type", "[safetensors_file]") {
  const ek::SafetensorsFile file = parse(
      R"({"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"m":{"dtype":"F64","shape":[2,1],"data_offsets":[8,24]},"t":{"dtype":"F32","shape":[1,1,1],"data_offsets":[24,28]}})",
      bytes::of<std::int64_t>({5}) + bytes::of({1.5, 1e300}) + bytes::of({1.0F}));
  CHECK(file.matrix<double>("m") == (ek::Matrix<double>(2, 1) << 1.5, 1e300).finished());
  const auto error = [&](const std::string& name) { return error_of([&] { file.matrix<float>(name); }); };
  CHECK(error("x") == "FormatError: f: expected a tensor \"x\", got none");
  CHECK(error("i") == "FormatError: f: tensor \"i\": expected type F64, F32, F16 or BF16, got I64");
  CHECK(error("t") == "FormatError: f: tensor \"t\": expected at most two dimensions, got shape (1, 1, 1)");
  CHECK(error("m") == "FormatError: f: tensor \"m\": expected numbers that a float can hold, got 1e+300");
}

TEST_CASE("A tensor without numbers whose other size no matrix can have is an error when it is asked for",
          "[safetensors_file]") {
  const auto error_for = [](const std::string& shape) {
    const auto file = bytes::parse(R"({"t":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,0]}})");
    return error_of([&] { file.matrix<float>("t"); });
  };
  const std::string begin = "FormatError: f: tensor \"t\": expected sizes of at most 9223372036854775807, got shape ";
  CHECK(error_for("[0,18446744073709551615]") == begin + "(0, 18446744073709551615)");
  CHECK(error_for("[0,9223372036854775808]") == begin + "(0, 9223372036854775808)");
  CHECK(error_for("[0,9223372036854775807]").empty());
  CHECK(error_for("[0]").empty());
}

TEST_CASE("A copy of a file outlives it", "[safetensors_file]") {
  auto file = std::make_unique<ek::SafetensorsFile>(parse(a_with("[4]", "[0,16]"), four));
  const ek::SafetensorsFile copy = *file;
  file.reset();
  CHECK(numbers(copy, "a") == std::vector{1.0F, 2.0F, 3.0F, 4.0F});
}

TEST_CASE("Files are laid out as the format's own writer does it", "[safetensors_file]") {
  // The bytes that the tests of safetensors' own writer expect: test_serialization, test_empty and
  // test_serialization_forced_alignement in tensor.rs.
  const bytes::Bytes six = bytes::of({0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 5.0F});
  CHECK(ek::safetensors_bytes({{"attn.0", ek::TensorType::f32, {1, 2, 3}, six}}) ==
        bytes::file(64, R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})", six));
  CHECK(ek::safetensors_bytes({{"attn0", ek::TensorType::f32, {1, 1, 2, 3}, six}}) ==
        bytes::file(72, R"({"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}}       )", six));
  CHECK(ek::safetensors_bytes({}) == bytes::file(8, "{}      "));
  CHECK(ek::safetensors_bytes({}, {{"framework", "pt"}}) ==
        bytes::file(40, R"({"__metadata__":{"framework":"pt"}}     )"));

  const bytes::Bytes half = bytes::of<std::uint16_t>({0x3C00});
  const bytes::Bytes count = bytes::of<std::int64_t>({3});
  CHECK(
      ek::safetensors_bytes({{"h", ek::TensorType::f16, {}, half},
                             {"b", ek::TensorType::f32, {4}, four},
                             {"n", ek::TensorType::i64, {}, count},
                             {"a", ek::TensorType::f32, {4}, four}}) ==
      bytes::file(
          R"({"n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[4],"data_offsets":[8,24]},)"
          R"("b":{"dtype":"F32","shape":[4],"data_offsets":[24,40]},"h":{"dtype":"F16","shape":[],"data_offsets":[40,42]}})",
          count + four + four + half));
}

TEST_CASE("What is written is read again, names and metadata of all kinds included", "[safetensors_file]") {
  const std::string name = "quote\" back\\slash \n tab\t \x01 \xC3\xA4 \xEF\xBF\xBD";
  const ek::SafetensorsFile file(ek::safetensors_bytes(
      {{name, ek::TensorType::f32, {4}, four}, {"", ek::TensorType::u8, {0, 3}, {}}}, {{name, name}, {"k", ""}}));
  CHECK(numbers(file, name) == std::vector{1.0F, 2.0F, 3.0F, 4.0F});
  CHECK(file.at("").shape == ek::TensorShape{0, 3});
  CHECK(file.metadata() == ek::TensorMetadata{{name, name}, {"k", ""}});
}

TEST_CASE("What no file can hold is not written", "[safetensors_file]") {
  const auto error = [](std::vector<ek::Tensor> tensors, ek::TensorMetadata metadata = {}) {
    return error_of([&] { ek::safetensors_bytes(tensors, metadata); });
  };
  const ek::Tensor a{"a", ek::TensorType::f32, {4}, four};
  const std::string place = "invalid_argument: safetensors_bytes: expected ";
  CHECK(error({a, {"b", a.type, a.shape, four}, a}) == place + "distinct names, got \"a\" twice");
  CHECK(error({{"__metadata__", a.type, a.shape, four}}) == place + "names other than \"__metadata__\", got it");
  CHECK(error({{"a", a.type, {5}, four}}) == place + "the bytes of F32 of shape (5,) in \"a\", got 16");
  CHECK(error({{"\xff", a.type, a.shape, four}}).starts_with(place + "text in UTF-8, got \""));
  CHECK(error({a}, {{"k", "\xc3"}}).starts_with(place + "text in UTF-8, got \""));
}
