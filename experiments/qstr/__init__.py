"""Of *When Do Transformers Outperform Feedforward and Recurrent Networks?*"""
