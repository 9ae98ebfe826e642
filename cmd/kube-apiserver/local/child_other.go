//go:build !linux

package local

import "syscall"

// withParent is nothing here: a child outlives this process where that is killed.
func withParent() *syscall.SysProcAttr { return nil }
