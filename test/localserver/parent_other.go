// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package localserver

import "syscall"

// EndsWithParent returns nil. On this platform, a child process continues to run if this process is
// killed.
func EndsWithParent() *syscall.SysProcAttr { return nil }
