// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package localserver

import "syscall"

// EndsWithParent returns attributes with which a child process is killed when this process exits
// for any reason.
func EndsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
