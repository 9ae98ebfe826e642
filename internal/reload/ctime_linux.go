// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"os"
	"syscall"
	"time"
)

// changeTime returns when the content or the metadata of a file last changed. No system call sets
// this time to a chosen value.
func changeTime(info os.FileInfo) time.Time {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(stat.Ctim.Unix())
	}
	return time.Time{}
}
