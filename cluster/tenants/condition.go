// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import "strings"

// maxMessage is the longest message of a condition that a server stores, in bytes. The definitions
// count characters, which are at most as many (metav1.Condition).
const maxMessage = 32768

// ConditionMessage returns the text as the message of a condition. It cuts the end of a longer text,
// because the server would refuse the whole status.
func ConditionMessage(text string) string {
	const end = " ..."
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-len(end)], "") + end
}
