// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package localserver

import "syscall"

// EndsWithParent lets a process end with this one, however this one ends.
func EndsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
