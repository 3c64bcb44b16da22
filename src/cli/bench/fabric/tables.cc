// The tables of report.h: one row per size, a group of columns per link.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/bench/fabric/link_bench.h"
#include "cli/bench/fabric/report.h"
#include "cli/support/format.h"

namespace shoal::cli {
namespace {

using Cells = std::vector<std::string>;

std::string rate_text(double bytes_per_second) {
  return format_bytes(static_cast<uint64_t>(bytes_per_second)) + "/s";
}

// What a table shows of each link in a row.
template <typename Entry>
struct ColumnGroup {
  std::vector<std::string> headings;
  // All links' entries of a row belong together; the list is that of one link.
  std::function<const std::vector<Entry>&(const LinkFigures&)> list;
  std::function<Cells(const Entry&)> cells;
};

// How a row is called, the same for all links.
using RowName = std::pair<size_t, std::string>;
RowName name_of(const MessageFigures& entry) { return {entry.bytes, ""}; }
RowName name_of(const CollectiveFigures& entry) { return {entry.bytes, entry.algorithm}; }

// The rows of any link, by size.
template <typename Entry>
std::vector<RowName> row_names(const std::vector<LinkFigures>& links,
                               const ColumnGroup<Entry>& group) {
  std::vector<RowName> names;
  for (const LinkFigures& link : links) {
    for (const Entry& entry : group.list(link)) {
      if (std::ranges::find(names, name_of(entry)) == names.end()) names.push_back(name_of(entry));
    }
  }
  std::ranges::sort(names);
  return names;
}

template <typename Entry>
std::string table_of(const std::string& title, const std::vector<LinkFigures>& links,
                     const ColumnGroup<Entry>& group) {
  using enum Table::Align;
  const std::vector<RowName> names = row_names(links, group);
  if (names.empty()) return "";
  const bool has_algorithms = std::ranges::any_of(
      names, [&](const RowName& name) { return name.second != names[0].second; });
  std::vector<Table::Column> columns = {{"size", kRight}};
  if (has_algorithms) columns.push_back({"algorithm"});
  for (const LinkFigures& link : links) {
    for (const std::string& heading : group.headings) {
      columns.push_back({link.link + " " + heading, kRight});
    }
  }
  Table table(std::move(columns));
  for (const RowName& name : names) {
    Cells row = {size_text(name.first)};
    if (has_algorithms) row.push_back(name.second);
    for (const LinkFigures& link : links) {
      const std::vector<Entry>& list = group.list(link);
      const auto entry =
          std::ranges::find_if(list, [&](const Entry& one) { return name_of(one) == name; });
      Cells cells = entry == list.end() ? Cells(group.headings.size()) : group.cells(*entry);
      std::ranges::move(cells, std::back_inserter(row));
    }
    table.add_row(std::move(row));
  }
  return "\n" + title + "\n" + table.to_string();
}

// Of fewer samples it would be one of the largest two.
constexpr size_t kSamplesForP99 = 100;
std::string p99_text(const Summary& seconds) {
  return seconds.count < kSamplesForP99 ? "" : format_seconds(seconds.p99);
}

Cells time_cells(const Summary& seconds) {
  return {format_seconds(seconds.median), p99_text(seconds), format_seconds(seconds.max)};
}

std::string message_tables(const std::vector<LinkFigures>& links) {
  using Group = ColumnGroup<MessageFigures>;
  const auto list_of = [](std::vector<MessageFigures> PairFigures::* list) {
    return [list](const LinkFigures& link) -> const std::vector<MessageFigures>& {
      return link.pairs.front().*list;
    };
  };
  const auto cpu = [](double seconds) { return format_seconds(seconds); };
  return table_of("one way: half of a round trip", links,
                  Group{{"p50", "p99", "max", "round trip p50"},
                        list_of(&PairFigures::round_trip),
                        [](const MessageFigures& one) {
                          Cells cells = time_cells(one_way_of(one));
                          cells.push_back(format_seconds(one.figure.median));
                          return cells;
                        }}) +
         table_of("messages one behind another, and processor time per message at both ends", links,
                  Group{{"rate", "messages/s", "sender", "receiver"},
                        list_of(&PairFigures::stream),
                        [&](const MessageFigures& one) -> Cells {
                          const double rate = one.figure.median / static_cast<double>(one.bytes);
                          return {rate_text(one.figure.median),
                                  format_count(static_cast<uint64_t>(rate)), cpu(one.lower_cpu),
                                  cpu(one.higher_cpu)};
                        }}) +
         table_of("both ways at once, both added", links,
                  Group{{"rate", "cpu/message"},
                        list_of(&PairFigures::both_ways),
                        [&](const MessageFigures& one) -> Cells {
                          return {rate_text(one.figure.median), cpu(one.lower_cpu)};
                        }});
}

std::string pair_table(const LinkFigures& link) {
  using enum Table::Align;
  Table table({{"ranks"},
               {"one way p50", kRight},
               {"p99", kRight},
               {"of", kRight},
               {"stream", kRight},
               {"of", kRight}});
  for (const PairFigures& pair : link.pairs) {
    Cells row = {fmt::format("{}, {}", pair.lower, pair.higher), "", "", "", "", ""};
    if (!pair.round_trip.empty()) {
      const MessageFigures& smallest = pair.round_trip.front();
      const Summary seconds = one_way_of(smallest);
      row[1] = format_seconds(seconds.median);
      row[2] = p99_text(seconds);
      row[3] = size_text(smallest.bytes);
    }
    if (!pair.stream.empty()) {
      row[4] = rate_text(pair.stream.back().figure.median);
      row[5] = size_text(pair.stream.back().bytes);
    }
    table.add_row(std::move(row));
  }
  return fmt::format("\nevery pair over {}\n", link.link) + table.to_string();
}

std::string collective_tables(const std::vector<LinkFigures>& links) {
  using Group = ColumnGroup<CollectiveFigures>;
  const auto list_of = [](std::vector<CollectiveFigures> LinkFigures::* list) {
    return [list](const LinkFigures& link) -> const std::vector<CollectiveFigures>& {
      return link.*list;
    };
  };
  const auto times = [](const CollectiveFigures& one) -> Cells {
    return {format_seconds(one.seconds.median), p99_text(one.single)};
  };
  const auto times_and_floor = [&](const CollectiveFigures& one) -> Cells {
    Cells cells = times(one);
    cells.push_back(one.bare.count > 0 ? fmt::format("{:.2f}", one.seconds.median / one.bare.median)
                                       : "");
    return cells;
  };
  return table_of("all-reduce (/ bare: to the same sum with nothing around it)", links,
                  Group{{"p50", "single p99", "/ bare"},
                        list_of(&LinkFigures::all_reduce),
                        times_and_floor}) +
         table_of("all-gather (size: of all parts together)", links,
                  Group{{"p50", "single p99"}, list_of(&LinkFigures::all_gather), times}) +
         table_of("broadcast", links,
                  Group{{"p50"},
                        list_of(&LinkFigures::broadcast),
                        [](const CollectiveFigures& one) -> Cells {
                          return {format_seconds(one.seconds.median)};
                        }});
}

bool has_message_figures(const PairFigures& pair) {
  return !pair.round_trip.empty() || !pair.stream.empty();
}

}  // namespace

std::string tables_of(const FabricReport& report) {
  std::string text = fmt::format("{} nodes; sizes in bytes{}\n", report.nodes,
                                 report.is_polling ? "; who waits polls" : "");
  if (report.links.empty()) return text;
  text += message_tables(report.links);
  for (const LinkFigures& link : report.links) {
    if (link.pairs.size() > 1 && has_message_figures(link.pairs.front())) text += pair_table(link);
  }
  return text + collective_tables(report.links);
}

}  // namespace shoal::cli
