// SPDX-License-Identifier: Apache-2.0

// The theme without its fonts: those of the reader's machine know his script, and nothing is loaded.
import theme from 'vitepress/theme-without-fonts'
import './style.css'

export default theme
