// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"os"
	"syscall"
	"time"
)

// changeTime returns when the file's content or metadata last changed, which nobody can set.
func changeTime(info os.FileInfo) time.Time {
	if stat, is := info.Sys().(*syscall.Stat_t); is {
		return time.Unix(stat.Ctim.Unix())
	}
	return time.Time{}
}
