// Asks for memory from many places, through the library's containers and functions that call back,
// while exceptions are on their way and in another thread, keeps all of it and ends.
#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <vector>

template <class T> static T &kept(T value) { return *new T(std::move(value)); }

struct Node {
    std::string name;
    std::unique_ptr<Node> left, right;
};

static std::unique_ptr<Node> grown(int depth, const std::string &name) {
    auto node = std::make_unique<Node>();
    node->name = name + std::string(20, 'n');
    if (depth > 0) {
        node->left = grown(depth - 1, node->name + 'l');
        node->right = grown(depth - 1, node->name + 'r');
    }
    return node;
}

struct Shape {
    virtual ~Shape() = default;
    virtual std::vector<double> corners(int n) const = 0;
};

struct Polygon : Shape {
    std::vector<double> corners(int n) const override { return std::vector<double>(n, 0.5); }
};

struct Star : Polygon {
    std::vector<double> corners(int n) const override {
        auto all = Polygon::corners(n);
        all.insert(all.end(), n, 1.5);
        return all;
    }
};

static void shapes() {
    std::vector<std::unique_ptr<Shape>> all;
    all.push_back(std::make_unique<Polygon>());
    all.push_back(std::make_unique<Star>());
    for (auto &shape : all)
        kept(shape->corners(5));
    kept(std::move(all));
}

static void compared() {
    std::vector<int> numbers(40);
    std::iota(numbers.rbegin(), numbers.rend(), 0);
    auto &seen = kept(std::map<int, std::string>());
    std::stable_sort(numbers.begin(), numbers.end(), [&](int one, int other) {
        seen.emplace(one, std::string(30, 's'));
        return one < other;
    });
    auto &counts = kept(std::unordered_map<std::string, int>());
    for (int number : numbers)
        counts["a number that is longer than a short string: " + std::to_string(number)]++;
}

// Runs while the frame that it is in is left for an exception.
struct Leaves {
    ~Leaves() { kept(std::string(50, 'd')); }
};

static void fails(int depth) {
    Leaves leaves;
    if (depth == 0)
        throw std::runtime_error("a reason that is longer than a short string holds");
    fails(depth - 1);
}

static void exceptions() {
    try {
        fails(4);
    } catch (const std::runtime_error &error) {
        kept(std::string(error.what()));
        kept(std::current_exception());
    }
}

// The frame is at an address that its function rounds.
static void rounded(const std::function<void(void *)> &use) {
    alignas(128) char block[256];
    use(block);
}

static void callbacks(int n) {
    std::vector<std::function<std::string()>> calls;
    for (int i = 0; i < n; i++)
        calls.push_back([i, name = std::string(40, 'c')] { return name + std::to_string(i); });
    for (auto &call : calls)
        kept(call());
    rounded([](void *block) { kept(std::vector<void *>(3, block)); });
    kept(std::move(calls));
}

static void everything() {
    kept(grown(4, "root"));
    shapes();
    compared();
    exceptions();
    callbacks(3);
}

// Made before `main` begins.
static const auto &early = kept(std::string(60, 'e'));

int main() {
    everything();
    std::thread(everything).join();
    // Nothing is given back, not even what the library itself has.
    _exit(early.size() == 60 ? 0 : 1);
}
