// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package localserver

import "syscall"

// EndsWithParent returns nil. On this platform, a process outlives this process if this process is
// killed.
func EndsWithParent() *syscall.SysProcAttr { return nil }
