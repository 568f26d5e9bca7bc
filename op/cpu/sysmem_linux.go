package cpu

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
)

// availableBytes is the memory that can be had without swapping: the least of
// what the kernel estimates and what the control groups leave. 0 means unknown.
func availableBytes() int64 {
	avail := meminfo("MemAvailable")
	for _, group := range controlGroups() {
		if left := groupLeft(group); left >= 0 && (avail == 0 || left < avail) {
			avail = max(left, 1)
		}
	}
	return avail
}

// meminfo returns a field of /proc/meminfo in bytes, 0 if it is not there.
func meminfo(field string) int64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		if rest, ok := strings.CutPrefix(string(line), field+":"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// controlGroups lists the folders of this process's memory control groups, the
// innermost first, for version 2 and for version 1.
func controlGroups() []string {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var dirs []string
	for line := range bytes.Lines(data) { // "0::/path" or "5:memory:/path"
		part := strings.SplitN(strings.TrimSpace(string(line)), ":", 3)
		if len(part) != 3 || part[1] != "" && !strings.Contains(","+part[1]+",", ",memory,") {
			continue
		}
		root := "/sys/fs/cgroup"
		if part[1] != "" {
			root += "/memory"
		}
		for path := strings.Trim(part[2], "/"); ; path = path[:max(0, strings.LastIndexByte(path, '/'))] {
			dirs = append(dirs, root+"/"+path)
			if path == "" {
				break
			}
		}
	}
	return dirs
}

// groupLeft is a group's limit less what it uses and could not drop, or −1
// without a limit.
func groupLeft(dir string) int64 {
	limit, used := number(dir+"/memory.max"), number(dir+"/memory.current")
	cache := "inactive_file "
	if limit < 0 {
		limit, used = number(dir+"/memory.limit_in_bytes"), number(dir+"/memory.usage_in_bytes")
		cache = "total_inactive_file "
	}
	if limit < 0 || limit >= 1<<60 || used < 0 {
		return -1
	}
	return max(0, limit-used+statField(dir+"/memory.stat", cache))
}

// number reads a file with one integer; −1 stands for anything else, "max" too.
func number(path string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func statField(path, field string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		if rest, ok := strings.CutPrefix(string(line), field); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}

// processorName returns the model name that the kernel reports.
func processorName() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return unnamedProcessor()
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return unnamedProcessor()
}
