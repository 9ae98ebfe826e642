// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package reload

import (
	"os"
	"time"
)

// changeTime is not known here: device, number, size and time of modification tell versions apart.
func changeTime(os.FileInfo) time.Time { return time.Time{} }
