// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package localserver

import "syscall"

// EndsWithParent is nothing here: a process outlives this one where this one is killed.
func EndsWithParent() *syscall.SysProcAttr { return nil }
